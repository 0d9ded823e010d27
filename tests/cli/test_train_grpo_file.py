"""The file of `assay train grpo`: what it must define, and how its mistakes are told."""

import textwrap
from pathlib import Path

import pytest

from assay.cli.train_grpo_file import load_train_file
from assay.errors import ConfigError

WHOLE = """
    from assay.train import GRPOConfig

    config = GRPOConfig(model_name="folder", num_steps=4)
    prompts = "prompts.jsonl"

    def score_fn(sample):
        return 1.0
"""


def written(folder: Path, text: str) -> str:
    path = folder / "my_training.py"
    path.write_text(textwrap.dedent(text))
    return str(path)


def test_a_whole_file_is_taken_as_it_is(tmp_path: Path) -> None:
    file = load_train_file(written(tmp_path, WHOLE))

    assert file.config.num_steps == 4
    assert file.prompts == tmp_path / "prompts.jsonl"
    assert file.score_fn is not None
    assert (file.environment, file.model) == (None, None)


def test_a_file_may_use_the_name_of_the_seeds_for_its_environment(tmp_path: Path) -> None:
    named = WHOLE + "\n    environment_cls = 'calculator'\n"

    assert load_train_file(written(tmp_path, named)).environment == "calculator"
    with pytest.raises(ConfigError, match="both `environment` and `environment_cls` are given"):
        load_train_file(written(tmp_path, named + "\n    environment = 'basic'\n"))


def test_options_take_the_place_of_settings_and_are_checked_like_them(tmp_path: Path) -> None:
    target = written(tmp_path, WHOLE)

    changed = load_train_file(target, num_steps=9, output=tmp_path / "o", seed=None).config

    assert (changed.num_steps, changed.output, changed.seed) == (9, tmp_path / "o", 0)
    with pytest.raises(ConfigError, match="num_steps: Input should be greater than 0"):
        load_train_file(target, num_steps=0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("prompts = []\ndef score_fn(s): ...", "the file does not define `config`"),
        ("config = {}", "`config` is a dict, not a GRPOConfig"),
        (WHOLE.replace("prompts =", "promts ="), "the file does not define `prompts`"),
        (WHOLE.replace("score_fn", "score"), "neither `score_fn` nor `environment`"),
        (WHOLE + "\n    model = 3\n", "`model` is a int, not a LocalModel"),
        (WHOLE + "\n    boom\n", "(?s)cannot be imported.*NameError"),
        (WHOLE.replace("num_steps", "steps"), r"(?s)cannot be imported.*steps"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=problem):
        load_train_file(written(tmp_path, text))


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the training is not a Python file"):
        load_train_file("training.yaml")
    with pytest.raises(ConfigError, match="the file does not exist"):
        load_train_file(str(tmp_path / "none.py"))
