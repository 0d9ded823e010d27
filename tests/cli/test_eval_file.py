"""The user's file: what is taken from it, and how its mistakes are shown."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.cli.eval_file import load_eval_file
from assay.datasets import load_samples
from assay.errors import ConfigError, DatasetError
from assay.scorers import format_user_traceback

CONFIG = """
from assay.runner import EvalConfig

def score(sample):
    return 1.0

config = EvalConfig(score_fn=score)
dataset = [{"question": "a"}]
"""


@pytest.fixture(autouse=True)
def _fresh_modules() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if getattr(sys.modules[name], "__file__", None) is None:
            continue
        if not str(sys.modules[name].__file__).startswith(sys.prefix):
            del sys.modules[name]


def write(folder: Path, text: str, name: str = "my_evaluation.py") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def test_the_file_gives_configuration_and_dataset(tmp_path: Path) -> None:
    file = load_eval_file(str(write(tmp_path, CONFIG)))

    assert file.config.name == "eval"
    assert file.dataset == [{"question": "a"}]
    # The fingerprint of a run begins with it: it must not depend on the folder.
    assert str(file.config.describe()["score_fn"]).startswith("my_evaluation.score ")


def test_another_configuration_is_named_after_a_colon(tmp_path: Path) -> None:
    path = write(tmp_path, CONFIG + "fast = EvalConfig(score_fn=score, name='fast')\n")

    assert load_eval_file(f"{path}:fast").config.name == "fast"


def test_modules_beside_the_file_can_be_imported(tmp_path: Path) -> None:
    write(tmp_path, "rows = [{'question': 'b'}]", "my_rows_beside.py")
    path = write(tmp_path, CONFIG + "from my_rows_beside import rows as dataset\n")

    assert load_eval_file(str(path)).dataset == [{"question": "b"}]


def test_a_file_named_like_an_existing_module_does_not_replace_it(tmp_path: Path) -> None:
    import json

    file = load_eval_file(str(write(tmp_path, CONFIG, "json.py")))

    assert sys.modules["json"] is json
    assert str(file.config.describe()["score_fn"]).startswith("eval_file_json.score ")


def test_a_dataset_is_looked_for_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "evals"
    folder.mkdir()
    (folder / "rows.jsonl").write_text('{"question": "beside"}\n')
    (tmp_path / "rows.jsonl").write_text('{"question": "elsewhere"}\n')
    (tmp_path / "only_here.jsonl").write_text('{"question": "elsewhere"}\n')
    monkeypatch.chdir(tmp_path)

    for written in ('"rows.jsonl"', '__import__("pathlib").Path("rows.jsonl")'):
        file = load_eval_file(str(write(folder, f"{CONFIG}dataset = {written}\n")))
        (sample,) = load_samples(file.dataset)
        assert sample.prompt == "beside"

    file = load_eval_file(str(write(folder, f'{CONFIG}dataset = "only_here.jsonl"\n')))
    expected = r"evals.only_here\.jsonl: the file or folder does not exist"
    with pytest.raises(DatasetError, match=expected):
        load_samples(file.dataset)


def test_a_dataset_is_looked_for_beside_what_a_linked_file_links_to(tmp_path: Path) -> None:
    for folder in ("evals", "links"):
        (tmp_path / folder).mkdir()
    target = write(tmp_path / "evals", f'{CONFIG}dataset = "rows.jsonl"\n')
    link = tmp_path / "links" / target.name
    link.symlink_to(target)

    (tmp_path / "evals" / "rows.jsonl").write_text('{"question": "beside the target"}\n')
    assert load_eval_file(str(link)).dataset == tmp_path / "evals" / "rows.jsonl"

    (tmp_path / "links" / "rows.jsonl").write_text('{"question": "beside the link"}\n')
    assert load_eval_file(str(link)).dataset == tmp_path / "links" / "rows.jsonl"


def test_a_folder_here_is_not_taken_for_the_dataset_of_a_file_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evals").mkdir()
    (tmp_path / "gsm8k").mkdir()
    path = write(tmp_path / "evals", f'{CONFIG}dataset = "gsm8k"\n')
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigError, match=r"'gsm8k' exists in the current folder, but not beside"):
        load_eval_file(str(path))


def test_the_name_of_a_dataset_stays_a_name(tmp_path: Path) -> None:
    file = load_eval_file(str(write(tmp_path, f'{CONFIG}dataset = "org/name"\n')))

    assert file.dataset == "org/name"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("config = 1\ndataset = []", r"`config` is a int, not an EvalConfig"),
        (
            "rows = []\ndef score(s): ...",
            r"not define `config`; it defines `rows`, `score`\n  hint: write config = ",
        ),
        ("import json\nfrom json import loads", "it defines nothing"),
        (
            CONFIG + "del dataset",
            r"not define `dataset`; it defines `score`, `config`\n  hint: write dataset = ",
        ),
        (
            CONFIG + "main = config\ndel config",
            r"the file does not define `config`; it .*\n"
            r"  hint: name the one to run: .*my_evaluation\.py:main",
        ),
        ("x = (", r"the file cannot be imported\n.*line 1(.*\n)*.*SyntaxError"),
        ("import sys\nsys.exit(0)", r"the file cannot be imported\nTraceback(.*\n)*SystemExit: 0"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(text: str, message: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)

    with pytest.raises(ConfigError, match=message) as caught:
        load_eval_file(str(path))

    assert caught.value.where == str(path)


def test_a_mistake_in_a_setting_names_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, CONFIG.replace("score_fn=score", "score_fn=score, repeats=0"))

    with pytest.raises(ConfigError, match=r"py:7: EvalConfig: repeats=0 is not"):
        load_eval_file(str(path))


def test_the_traceback_shows_the_users_files_only(tmp_path: Path) -> None:
    write(tmp_path, "import json\ndef read(text):\n    return json.loads(text)\n", "my_reader.py")
    path = write(tmp_path, "import my_reader\nmy_reader.read('{')\n")

    with pytest.raises(ConfigError) as caught:
        load_eval_file(str(path))

    shown = caught.value.message
    assert [line.split('"')[1] for line in shown.splitlines() if "File" in line] == [
        str(path),
        str(tmp_path / "my_reader.py"),
    ]
    assert shown.splitlines()[-1].startswith("json.decoder.JSONDecodeError: ")
    assert "my_evaluation" not in sys.modules


def test_an_error_from_elsewhere_has_no_users_traceback(tmp_path: Path) -> None:
    assert format_user_traceback(ValueError("x"), tmp_path / "a.py") is None


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("missing.py", r"missing\.py: the file does not exist"),
        ("missing.py:config", r"missing\.py: the file does not exist"),
        ("rows.jsonl", "the evaluation is not a Python file"),
        ("", "the evaluation is not a Python file"),
    ],
)
def test_a_target_that_is_no_file_is_refused(target: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_eval_file(target)
