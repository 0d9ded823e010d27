"""Model folders: checked without loading, loaded once."""

import gc
import json
from pathlib import Path
from typing import Any

import pytest

from assay.errors import ConfigError, MissingExtra
from assay.providers import connect, in_process_model
from assay.providers.in_process_folder import check_folder, load_shared_model, parse_local_options
from assay.types import Endpoint
from tiny_models import tiny_model


def endpoint(folder: Path | str, **fields: Any) -> Endpoint:
    return Endpoint(provider="local", model=str(folder), **fields)


def test_a_loaded_model_is_shared_until_nobody_has_it(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path, "plain")
    options = parse_local_options(endpoint(folder))

    first = load_shared_model(folder, options)
    marked = id(first.model)

    assert load_shared_model(tmp_path / "." / "tiny-plain", options) is first
    faster = parse_local_options(endpoint(folder, extra_params={"threads": 2}))
    other = load_shared_model(folder, faster)
    assert other is not first
    assert (first.threads, other.threads) == (1, 2)
    keep = first.model
    del first
    gc.collect()
    assert id(load_shared_model(folder, options).model) != marked
    assert keep is not None


def test_a_folder_that_was_written_again_is_loaded_again(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path, "plain")
    options = parse_local_options(endpoint(folder))
    first = load_shared_model(folder, options)

    tiny_model(tmp_path, "plain", seed=1)

    assert load_shared_model(folder, options) is not first


def test_what_cannot_be_asked_is_refused_by_connect(tmp_path: Path) -> None:
    base = tiny_model(tmp_path, "plain")
    (base / "chat_template.jinja").unlink()
    (base / "tokenizer_config.json").write_text("[]")

    with pytest.raises(ConfigError, match="no chat template"):
        connect(endpoint(base))
    with pytest.raises(ConfigError, match="is not a folder") as caught:
        connect(endpoint(tmp_path / "absent"))
    assert "'smollm2-135m'" in str(caught.value.hint)


def test_a_template_inside_the_tokenizer_settings_will_do(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path, "plain")
    (folder / "chat_template.jinja").unlink()
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": "{{ x }}"}))

    assert check_folder(endpoint(folder)) == folder


def test_a_missing_package_is_named_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(in_process_model, "find_spec", lambda name: None)

    with pytest.raises(MissingExtra, match="`torch`"):
        connect(endpoint(tmp_path))


def test_settings_are_read_as_they_are_meant() -> None:
    options = parse_local_options(
        endpoint(
            "x",
            temperature=0.0,
            stop=("END", ""),
            extra_params={"stop_token_ids": [3], "dtype": "bfloat16", "device": "cpu"},
        )
    )

    assert options.sampling.temperature == 0.0
    assert options.sampling.stop_ids == (3,)
    assert options.stop == ("END",)
    assert (options.dtype, options.device) == ("bfloat16", "cpu")
