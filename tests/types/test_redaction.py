"""`redact`: which secrets are in use, and in which forms they are removed."""

import gc
import json
from urllib.parse import quote

import pytest

from assay.types import Boundary, Failure
from assay.types.redaction import Redactor, redact

KEY = "c4nary+key/0123456789abcdef"


@pytest.fixture
def in_use() -> Redactor:
    return Redactor([KEY])


@pytest.mark.parametrize(
    "spelled",
    [
        KEY,
        quote(KEY, safe=""),
        quote(KEY, safe="").replace("%2B", "%2b").replace("%2F", "%2f"),
        json.dumps({"key": KEY}),
        json.dumps(json.dumps({"key": KEY})),
        repr([KEY]),
        f"{KEY[:15]}...",
        f"{KEY[:6]}…{KEY[-4:]}",
        f"{KEY[:4]}****{KEY[-6:]}",
        f"the key begins with {KEY[:10]}",
        f"{KEY[:9]}\nnext line",
        f"a part of it, {KEY[:13]}, in a sentence",
        f"its end is {KEY[-13:]} here",
    ],
)
def test_a_secret_in_use_is_removed_however_it_is_written(spelled: str, in_use: Redactor) -> None:
    cleaned = redact(f"refused: {spelled}")

    assert "[redacted]" in cleaned
    assert "c4na" not in cleaned
    assert "cdef" not in cleaned


def test_words_that_only_begin_like_a_secret_stay(in_use: Redactor) -> None:
    other = Redactor(["evaluation-bot-of-the-team"])

    text = 'File "assay/evaluation/engine.py", line 3, in evaluation\n  c4nary is a word'

    assert redact(text) == text
    assert other


def test_a_secret_is_forgotten_with_the_last_who_holds_it() -> None:
    redactor = Redactor(["gone-with-its-owner"])
    assert redact("gone-with-its-owner") == "[redacted]"

    del redactor
    gc.collect()

    assert redact("gone-with-its-owner") == "gone-with-its-owner"


def test_short_keys_and_placeholders_are_words_elsewhere() -> None:
    redactors = [Redactor(["EMPTY", "test"]), Redactor(["ollama"])]

    assert redact("a test of ollama: EMPTY") == "a test of ollama: EMPTY"
    assert redactors[0].clean("key test") == "key [redacted]"


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("OPENAI_API_KEY", True),
        ("HF_TOKEN", True),
        ("PGPASSWORD", True),
        ("MY_SERVICE_SECRET", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("TOKENIZERS_PARALLELISM", False),
        ("MONKEY", False),
        ("HOME", False),
    ],
)
def test_variables_named_like_a_secret_are_in_use(
    name: str, secret: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "value-of-a-variable")

    assert (redact("it is value-of-a-variable") == "it is [redacted]") is secret


@pytest.mark.parametrize(
    "key",
    [
        "gho_abcdefghijklmnopqrstuvwxyz0123456789",
        "github_pat_11ABCDEFG0abcdefghijkl_0123456789abcdefghijkl",
        "glpat-abcdefghij0123456789",
        "xoxb-123456789012-123456789012-abcdefghijklmnopqrstuvwx",
        "npm_abcdefghijklmnopqrstuvwxyz0123456789",
        "fw_3ZabcdefghijklmnopqrstuvW",
        "ASIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w",
        "-----BEGIN PRIVATE KEY-----\nMIIEvQ/+=\n-----END PRIVATE KEY-----",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
    ],
)
def test_what_has_the_shape_of_a_key_is_removed(key: str) -> None:
    assert redact(f"it is {key} .") == Redactor([]).clean(f"it is {key} .") == "it is [redacted] ."


@pytest.mark.parametrize(
    "name",
    [
        "npm_config_registry",
        "eyJ.eyJ.eyJ",
        "skip_special_tokens",
        "hf_hub_download",
        "sk_learn_configuration_of_it",
    ],
)
def test_names_with_the_prefix_of_a_key_stay(name: str) -> None:
    assert redact(name) == Redactor([]).clean(name) == name


def test_a_failure_shows_no_secret_that_its_exception_quotes(in_use: Redactor) -> None:
    def score() -> None:
        try:
            raise KeyError(KEY)
        except KeyError as error:
            raise ValueError(f"cannot use {KEY}") from error

    with pytest.raises(ValueError, match="c4nary") as caught:
        score()
    caught.value.add_note(f"asked with {quote(KEY, safe='')}")

    failure = Failure.of(caught.value, Boundary.SCORER)

    assert failure.message == "cannot use [redacted]"
    assert failure.traceback is not None
    assert "KeyError: '[redacted]'" in failure.traceback
    assert "c4nary" not in failure.model_dump_json()


def test_long_text_is_redacted_in_one_pass(in_use: Redactor) -> None:
    # Would take hours if each occurrence were searched for in the whole rest.
    text = (KEY[:5] + " ") * 200_000 + "sk-" + "a" * 10 + "-a" * 200_000

    assert redact(text) == text
