"""Tokens for an export: recorded ones first, made ones only with a tokenizer, and counted."""

from pathlib import Path

import pytest

from assay.cli.export_tokens import Tokens
from assay.errors import TokenError
from assay.types import ModelCall, Sample, Trajectory
from make import asked, said
from tiny_trainer import tiny_tokenizer


def rolled_out(*calls: ModelCall) -> Sample:
    return Sample(
        id="s",
        prompt=[asked("hi")],
        trajectory=Trajectory(messages=[asked("hi"), said("yo")], calls=list(calls)),
    )


RECORDED = ModelCall(prompt_ids=(1, 2), completion_ids=(3, 4), message_index=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    tiny_tokenizer().save_pretrained(path)
    return path


def test_recorded_tokens_are_taken_whatever_tokenizer_is_there(folder: Path) -> None:
    tokens = Tokens(folder)

    (made,) = tokens(rolled_out(RECORDED))

    assert (made.tokens, made.loss_mask) == ([1, 2, 3, 4], [0.0, 0.0, 1.0, 1.0])
    assert list(tokens.notes()) == []


def test_tokens_made_of_text_are_counted(folder: Path) -> None:
    tokens = Tokens(folder)

    (made,) = tokens(rolled_out())

    trained = [token for token, on in zip(made.tokens, made.loss_mask, strict=True) if on]
    assert tiny_tokenizer().decode(trained) == "yo[end]"
    assert list(tokens.notes()) == ["1 samples have no recorded tokens; their text was retokenized"]


def test_without_a_tokenizer_text_is_not_made_into_tokens() -> None:
    with pytest.raises(TokenError):
        Tokens(None)(rolled_out())
