"""How long a sample is: by recorded calls, by a tokenizer, and when nobody knows."""

from pathlib import Path

import pytest

from assay.errors import ConfigError, WireError
from assay.export.token_lengths import UNKNOWN, Lengths, count_recorded_tokens, load_tokenizer
from assay.types import Message, ModelCall, Sample, Trajectory, Usage
from make import asked, said, sample
from tiny_trainer import tiny_tokenizer


def called(*calls: ModelCall) -> Sample:
    return Sample(
        prompt="?", trajectory=Trajectory(messages=[asked("?"), said("x")], calls=list(calls))
    )


BY_IDS = ModelCall(prompt_ids=(1, 2, 3), completion_ids=(4,))
BY_USAGE = ModelCall(usage=Usage(input_tokens=10, output_tokens=5))


def test_the_longest_call_is_the_length() -> None:
    assert count_recorded_tokens(called(BY_IDS, BY_USAGE), False) == 15
    assert count_recorded_tokens(called(BY_IDS, BY_USAGE), True) == 3
    assert count_recorded_tokens(Sample(tokens=[1, 2]), False) == 2


def test_a_length_that_one_call_does_not_know_is_not_known() -> None:
    lengths = Lengths.from_usage(100)

    assert lengths.find_length_problem(called(BY_IDS, ModelCall())) == UNKNOWN
    assert lengths.find_length_problem(called()) == UNKNOWN
    assert lengths.find_length_problem(called(ModelCall(error="gone"), BY_IDS)) is None


def test_a_request_for_a_title_is_not_the_conversation() -> None:
    title = ModelCall(usage=Usage(input_tokens=900, output_tokens=5), purpose="title")

    given = called(title, BY_IDS, ModelCall(purpose="summary"))

    assert count_recorded_tokens(given, True) == 3
    assert count_recorded_tokens(given, False) == 4


def test_the_limit_may_be_reached_and_not_passed() -> None:
    assert Lengths.from_usage(15).find_length_problem(called(BY_USAGE)) is None
    assert Lengths.from_usage(14).find_length_problem(called(BY_USAGE)) == "longer than 14 tokens"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    tiny_tokenizer().save_pretrained(path)
    return path


def test_a_tokenizer_counts_what_its_chat_template_writes(folder: Path) -> None:
    given = sample(asked("hi"), said("yo"))

    lengths = Lengths.from_tokenizer(7, folder)

    # [user] h i [end] [assistant] y o [end]
    assert lengths.count(given, False) == 8
    assert lengths.count(given, True) == 4
    assert lengths.find_length_problem(given) == "longer than 7 tokens"
    assert lengths.find_length_problem(given, prompt_only=True) is None


def test_what_a_template_cannot_write_is_refused(folder: Path) -> None:
    image = Message.model_validate({"role": "user", "content": [{"type": "image", "url": "u"}]})

    with pytest.raises(WireError):
        Lengths.from_tokenizer(10, folder).find_length_problem(sample(image, said("x")))


def test_what_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the folder does not exist"):
        load_tokenizer(tmp_path / "none")
    with pytest.raises(ConfigError, match="the tokenizer cannot be loaded"):
        load_tokenizer(tmp_path)


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError):
        Lengths.from_usage(0)
