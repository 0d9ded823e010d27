"""The options of commands that run on a Ray cluster, before one is started."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

import pytest

from assay.cli.ray_options import add_engine_options, find_scripts, read_engine_options
from assay.errors import ConfigError

_STORE = "postgresql://me@db/evals"


def parse(*words: str, store: str = _STORE) -> Namespace:
    parser = ArgumentParser()
    add_engine_options(parser)
    return Namespace(**vars(parser.parse_args(words)), store=store)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_an_engine_samples_run_in_this_process() -> None:
    assert read_engine_options(parse()) is None


@pytest.mark.parametrize(
    "words", [("--ray-address", "host:1"), ("--workers", "2"), ("--ray-env", "TOKEN")]
)
def test_options_of_the_engine_need_one(words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=f"{words[0]} has no effect without an engine"):
        read_engine_options(parse(*words))


def test_a_file_is_refused_as_the_store() -> None:
    with pytest.raises(ConfigError, match="cannot record into a SQLite file"):
        read_engine_options(parse("--engine", "ray", store="runs.db"))


def test_the_code_of_scripts_is_sent_with_the_modules_that_they_import(project: Path) -> None:
    (project / "agents.py").write_text("def answer(sample): return 'Lyon'\n")
    (project / "mine.py").write_text("import other\n")
    (project / "other.py").write_text("")
    words = ("--engine", "ray", "--workers", "3", "--ray-env", "TOKEN")

    scripts = find_scripts(["agents.py:answer", "mine.py:score", "exact_answer", "absent.py:x"])
    settings = read_engine_options(parse(*words), scripts, ignore=_Everything())

    assert settings is not None
    assert settings.code is not None
    assert (settings.workers, settings.variables) == (3, ("TOKEN",))
    assert settings.code.scripts == ("agents.py", "mine.py")
    assert sorted(settings.code.files) == ["agents.py", "mine.py", "other.py"]


def test_files_that_code_names_are_sent_and_the_dataset_is_not(project: Path) -> None:
    text = "names = open('names.txt')\ndataset = 'questions.jsonl'\n"
    (project / "evaluation.py").write_text(text)
    for name in ("names.txt", "questions.jsonl"):
        (project / name).write_text("content")
    dataset = project / "questions.jsonl"

    settings = read_engine_options(
        parse("--engine", "ray"), [Path("evaluation.py")], _Everything(), datasets=[dataset, None]
    )

    assert settings is not None
    assert settings.code is not None
    assert sorted(settings.code.files) == ["evaluation.py", "names.txt"]


class _Everything:
    """Ignores the modules of the tests, which are not installed."""

    def __contains__(self, name: object) -> bool:
        return True
