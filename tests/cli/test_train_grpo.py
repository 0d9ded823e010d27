"""`assay train grpo`: what it prints, where, and its exit status."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from assay.cli import main
from assay.cli.train_grpo import format_grpo_step, load_train_file
from assay.datasets import SkippedRows
from assay.errors import ConfigError
from assay.train import GRPOResult
from assay.train.step_statistics import StepMetrics
from lamps import lamp_model
from served_models import serving

SUPPORT = Path(__file__).parents[1] / "support"
FILE = f"""
import sys
from pathlib import Path

sys.path.insert(0, {str(SUPPORT)!r})
from lamps import PROMPTS, Lamp, lamp_config, lamp_model, looked_and_said

config = lamp_config(Path("."), num_steps=2)
prompts = PROMPTS
score_fn = looked_and_said
environment = Lamp


def model():
    print("made by the file")
    return lamp_model()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASSAY_STORE", raising=False)
    (tmp_path / "lamp_training.py").write_text(FILE)
    return tmp_path


def run(*arguments: str) -> int:
    return main(["train", "grpo", "lamp_training.py", *arguments])


SERVED = """
from assay.errors import EndpointError
from assay.train import UploadWeights

upload, failures = UploadWeights(), [EndpointError("no connection", where="http://here")]


async def update_weights(weights, endpoint):
    if weights.version == "step-1" and failures:
        raise failures.pop()
    await upload(weights, endpoint)


config = lamp_config(Path("."), num_steps=2, server="URL", update_weights=update_weights)
"""


def test_the_wait_for_an_unreachable_server_is_shown(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.train.weight_updates._RETRY_WAITS_S", (0.4, 0.4))
    with serving(lamp_model(seed=7)) as served:
        (folder / "lamp_training.py").write_text(FILE + SERVED.replace("URL", served.url))

        assert run() == 0

    out, err = capsys.readouterr()
    assert "http://here: no connection; the next try is in 0 s" in err
    assert "staleness     0.0 steps on average, at most 0\n" in out


def test_options_name_the_server_and_how_far_it_samples_ahead(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serving(lamp_model(seed=7)) as served:
        assert run("--server", served.url, "--max-staleness", "1", "--json") == 0

        last = json.loads(capsys.readouterr().out)["last"]
        assert last["weight_versions"].keys() <= {"step-0", "step-1"}
        assert served.versions == ["step-0", "step-1", "step-2"]
    assert run("--max-staleness", "1") == 2
    assert "`max_staleness` has no effect without `server`" in capsys.readouterr().err


def test_a_file_that_imports_torch_is_not_imported_without_it(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "lamp_training.py").write_text("import torch\n" + FILE)
    monkeypatch.setitem(sys.modules, "torch", None)

    assert run() == 2

    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "training needs the package `torch`",
        "  hint: pip install 'assay-eval[train]'",
    ]


def test_a_training_says_what_came_of_it_and_where_to_look(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run() == 0

    out, err = capsys.readouterr()
    lines = dict(line.split(maxsplit=1) for line in out.splitlines() if "  " in line)
    assert lines["steps"] == "2"
    assert lines["rollouts"] == "24, 0 failed, 0 not judged"
    assert lines["model"] == "out/model"
    assert out.splitlines()[-1] == f"  assay show {lines['run']}"
    assert "made by the file" in err
    assert "2/2 reward" in err
    assert main(["show", lines["run"]]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert {line for line in out.splitlines() if " reward " in line} <= set(shown)


def test_held_out_samples_are_evaluated_and_stop_the_training(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"id": "held", "prompt": "lamp?", "answer": "red"}]
    (folder / "held.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    # Held-out samples never score, so that the first evaluation remains the best.
    scored = "score_fn = lambda sample: looked_and_said(sample) * (sample.id != 'held')"
    file = FILE.replace("score_fn = looked_and_said", scored)
    (folder / "lamp_training.py").write_text(file)
    options = ("--eval-dataset", "held.jsonl", "--eval-every", "1", "--patience", "1")

    assert run(*options, "--json") == 0

    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["steps"], found["stopped_early"], found["best_model"]) == (1, True, None)
    assert [each["score"] for each in found["evaluations"]] == [0.0, 0.0]
    assert "evaluation before step 1: 0.000" in err
    assert "evaluation after step 1: 0.000" in err
    assert run(*options, "--resume") == 0
    out = capsys.readouterr().out
    assert "the best is before step 1: 0.000" in out
    assert "stopped       early" in out
    assert main(["show", found["run"]]) == 0
    shown = capsys.readouterr().out.splitlines()
    (best,) = (line.split() for line in shown if line.startswith("  step 0 "))
    assert best[:4] == ["step", "0", "1", "0.000"]
    assert "best" in best


def test_json_is_the_same_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", "--quiet", "--num-steps", "1", "-o", "elsewhere") == 0

    found = json.loads(capsys.readouterr().out)
    assert (found["steps"], found["model"], found["exit_status"]) == (1, "elsewhere/model", 0)
    assert found["last"]["rollouts"] == 12


def test_it_goes_on_where_it_stopped_and_refuses_to_begin_twice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("--num-steps", "1") == 0
    assert run("--num-steps", "2") == 2
    assert "the folder already contains a training" in capsys.readouterr().err

    assert run("--num-steps", "2", "--resume", "--json") == 0

    out, err = capsys.readouterr()
    assert json.loads(out)["steps"] == 2
    assert ", resumed after step 1" in err


def test_a_training_in_which_nothing_could_be_judged_is_no_success(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = FILE.replace("score_fn = looked_and_said", "score_fn = lambda sample: 1 / 0")
    (folder / "lamp_training.py").write_text(broken)

    assert run("--num-steps", "1") == 3

    out, err = capsys.readouterr()
    assert "12 failed" in out
    assert "nothing was learned" in err


def test_one_that_breaks_off_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from assay.errors import TrainingError

    def broken(*_: object, **__: object) -> None:
        raise TrainingError("the gradient is nan")

    monkeypatch.setattr("assay.train.policy.Policy.update", broken)

    assert run("--store", "postgresql://me:secret@127.0.0.1:1/db") == 3  # no such server
    assert run() == 3

    err = capsys.readouterr().err
    assert "the gradient is nan" in err
    assert "assay train grpo lamp_training.py --resume" in err
    assert "secret" not in err


@pytest.mark.parametrize(("interrupted", "status"), [(False, 0), (True, 130)])
def test_a_process_that_learns_along_with_another_prints_nothing(
    interrupted: bool,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def followed(*_: object, **__: object) -> GRPOResult:
        return GRPOResult(
            run_id="r",
            store="s",
            steps=[metrics()],
            model=lamp_model(),
            output=Path("out"),
            model_path=None,
            curve_path=Path("out/reward.svg"),
            skipped=SkippedRows(),
            interrupted=interrupted,
            follows=True,
        )

    monkeypatch.setattr("assay.cli.train_grpo.grpo_train_async", followed)

    assert run("--quiet", "--json") == status

    assert capsys.readouterr().out == ""


WRONG: dict[str, tuple[str, str, str]] = {
    "no score": ("score_fn = looked_and_said\nenvironment = Lamp", "", "neither `score_fn`"),
    "no prompts": ("prompts = PROMPTS", "prompts = []", "the dataset of prompts is empty"),
    "no file": ("prompts = PROMPTS", "prompts = 'none.jsonl'", "the file or folder does not exist"),
    "no model": ("def model():", "def other():", "'lamps' is not a folder"),
    "a file in the way": ('Path(".")', 'Path("lamp_training.py")', "the folder cannot be written"),
    "no tracker": ("num_steps=2", "num_steps=2, report_to='nobody'", "unknown tracker 'nobody'"),
    "refused by TRL": (
        "num_steps=2",
        "num_steps=2, backend='trl', trl={'use_vllm': True}",
        "trl.use_vllm needs the package `vllm`",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_request_runs_nothing_and_leaves_nothing_behind(
    wrong: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after, problem = WRONG[wrong]
    assert before in FILE
    (folder / "lamp_training.py").write_text(FILE.replace(before, after))

    assert run("--quiet") == 2

    assert problem in capsys.readouterr().err
    assert {path.name for path in folder.iterdir()} <= {"lamp_training.py", "__pycache__"}


def test_what_is_not_there_cannot_be_gone_on_with(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--resume") == 2
    assert "the folder does not contain a training to resume" in capsys.readouterr().err
    assert main(["train", "grpo", "none.py"]) == 2


def started(*arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "assay", "train", "grpo", "lamp_training.py", *arguments]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def read_until(process: "subprocess.Popen[str]", words: str) -> None:
    assert process.stderr is not None
    assert any(words in line for line in process.stderr)


def test_ctrl_c_keeps_a_checkpoint_and_tells_how_to_go_on(folder: Path) -> None:
    process = started("--num-steps", "100000", "--grace-s", "0.1")
    read_until(process, "checkpoint")

    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)

    assert process.returncode == 130
    assert "assay train grpo lamp_training.py --num-steps 100000 --resume" in err
    steps = int(dict(line.split(maxsplit=1) for line in out.splitlines()[:1])["steps"])
    saved = sorted(path.name for path in (folder / "out" / "checkpoints").iterdir())
    assert saved[-1] == f"step-{steps:06}"
    assert run("--num-steps", str(steps + 1), "--resume") == 0


def metrics(**fields: object) -> StepMetrics:
    known: dict[str, object] = {
        "step": 1,
        "reward": 0.5,
        "reward_low": None,
        "reward_high": None,
        "rollouts": 8,
        "valid": 8,
        "invalid": 0,
        "failed": {},
        "groups": 2,
        "zero_variance": 0.0,
        "resampled": 0,
        "found": 0,
        "trained_rollouts": 8,
        "trained_tokens": 80,
        "updated": True,
        "learning_rate": 0.1,
        "response_tokens": 10.0,
        "truncated": 0.0,
        "turns": 1.0,
        "tokens_per_s": 100.0,
        "rollout_s": 1.0,
        "update_s": 1.0,
    }
    return StepMetrics.model_validate({**known, **fields})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "reward 0.500, 100 tokens/s"),
        (
            {"kl": 0.0123, "entropy": 1.5, "clip_fraction": 0.25},
            "reward 0.500, kl 0.0123, entropy 1.5, clip 0.25, 100 tokens/s",
        ),
        (
            {"reward": None, "failed": {"scorer": 2, "endpoint": 1}, "invalid": 4},
            "reward not judged, 3 failed, 4 not judged, 100 tokens/s",
        ),
        ({"tokens_per_s": None}, "reward 0.500"),
        ({"staleness": 1.5, "stale": 3}, "reward 0.500, staleness 1.5, 3 stale, 100 tokens/s"),
    ],
)
def test_a_step_in_words_says_what_is_known(fields: dict[str, object], words: str) -> None:
    assert format_grpo_step(metrics(**fields)) == words


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
        ("config = {}\nprompts = []", "`config` is a dict, not a GRPOConfig"),
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


AGENT_FILE = FILE.replace("environment = Lamp", "agent = 'cmd:cat'")
ASK = """
def ask(sample, context):
    return context.client.ask(context.messages, seed=context.sampling_seed).message.text
"""


def test_an_agent_of_the_file_or_the_option_answers(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "lamp_training.py").write_text(AGENT_FILE)
    (folder / "asking.py").write_text(ASK)

    assert run("--quiet", "-o", "silent") == 3
    assert "answered in none of the 12 rollouts" in capsys.readouterr().err
    assert run("--quiet", "--agent", "asking.py:ask") == 0
    assert "24, 0 failed, 0 not judged" in capsys.readouterr().out


def test_an_agent_beside_an_environment_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--quiet", "--agent", "cmd:cat") == 2

    assert "`environment` applies to a model, but `agent` is cmd:cat" in capsys.readouterr().err
