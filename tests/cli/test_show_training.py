"""What `assay show` says of a training."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from assay.cli import main
from assay.cli.show_training import format_reward, format_training
from assay.runner import read_training
from assay.store import Run, RunSpec, Store
from assay.store.result_reader import parse_sample
from assay.types import Boundary, EvaluateResult, Failure, Sample, Status
from recorded_runs import record, samples

SETTINGS = {"prompts_per_step": 2, "group_size": 2, "zero_variance": "keep"}
Scores = Sequence[float | str | None]


def rollout(step: int, place: int, score: float | str | None) -> Sample:
    """The rollout at this place of a step, two for each prompt."""
    plain = Sample(
        id=f"row-{place // 2}",
        group_index=(step - 1) * 2 + place // 2,
        metadata={"training_step": step},
        status=Status.COMPLETED,
    )
    if not isinstance(score, str):
        return plain.model_copy(update={"score": EvaluateResult(score=score)})
    failure = Failure(boundary=Boundary.SCORER, kind="ValueError", message="no idea")
    return plain.model_copy(update={"failure": failure, "status": Status.FAILED})


def recorded(
    path: Path,
    steps: Sequence[Scores],
    measured: Mapping[int, Mapping[str, Any]] | None = None,
    **settings: Any,
) -> None:
    """A training whose steps have these scores; "broken" fails, None is not judged."""
    config = {"training": {**SETTINGS, **settings}}
    spec = RunSpec(id="t", name="grpo", config=config, config_fingerprint="f", dataset="d")

    async def write() -> None:
        with Store.open(path) as store:
            run = store.start_run(spec)
            async with run.writer() as writer:
                for step, scores in enumerate(steps, start=1):
                    for place, score in enumerate(scores):
                        sample, repeat = rollout(step, place, score), 2 * step + place % 2
                        keep = writer.record_failure if sample.failure else writer.record
                        await keep(f"{step}-{place}", sample, repeat=repeat)
            for step, metrics in (measured or {}).items():
                run.record_step(step, metrics)
            run.finish("completed")

    asyncio.run(write())


def lines_of(path: Path) -> list[str]:
    with Store.open(path) as store:
        found = read_training(store.run())
    assert found is not None
    return format_training(found)


def test_each_step_has_its_reward_and_what_was_left_out_of_it(tmp_path: Path) -> None:
    recorded(tmp_path / "s.db", [(0.0, 0.5, "broken", 0.5), (1.0, 1.0, None, 0.5)])

    lines = lines_of(tmp_path / "s.db")

    assert lines[0].split() == ["steps", "2"]
    assert lines[1].startswith("first reward  0.375 (95 % from 0.0")
    assert lines[2].startswith("last reward   0.750 (95 % from 0.0")
    assert lines[3] == "rollouts      8, 1 failed, 1 not judged"
    assert [(each.split()[:3], each.split()[-3:]) for each in lines[5:7]] == [
        (["1", "4", "0.375"], ["1", "0", "unknown"]),
        (["2", "4", "0.750"], ["0", "1", "unknown"]),
    ]


@pytest.mark.parametrize(
    ("measured", "line"),
    [
        (
            [{"staleness": 0.0, "staleness_max": 0}, {"staleness": 1.5, "staleness_max": 2}],
            "staleness     0.8 steps on average, at most 2",
        ),
        (
            [{"staleness": 1.0, "staleness_max": 1, "stale": 2}, {"stale": 4}],
            "staleness     1.0 steps on average, at most 1; 6 rollouts were older than allowed and "
            "dropped",
        ),
    ],
)
def test_a_training_against_a_server_has_its_staleness(
    measured: list[dict[str, Any]], line: str, tmp_path: Path
) -> None:
    scores = [(0.0, 0.5, 1.0, 0.5)] * 2
    recorded(tmp_path / "s.db", scores, dict(enumerate(measured, start=1)))
    recorded(tmp_path / "local.db", scores, {1: {"stale": 0, "staleness": None}})

    text = " ".join(each.strip() for each in lines_of(tmp_path / "s.db")[4:6])

    assert text.startswith(line)
    assert "staleness" not in "".join(lines_of(tmp_path / "local.db"))


def test_a_narrow_terminal_has_the_first_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(tmp_path / "s.db", [(0.0, 0.5, 1.0, 0.5)], {1: {"loss": 0.5, "kl": 0.25}})
    monkeypatch.setenv("COLUMNS", "60")

    lines = lines_of(tmp_path / "s.db")

    assert lines[4].split() == ["step", "rollouts", "reward", "95", "%", "failed"]
    assert lines[6].split() == ["step", "updated", "loss", "KL", "entropy"]
    assert lines[7].split() == ["1", "-", "0.5", "0.25", "-"]
    assert max(map(len, lines)) <= 60


def test_a_step_in_which_nothing_was_judged_has_no_reward(tmp_path: Path) -> None:
    recorded(tmp_path / "s.db", [(None, None, None, None)])

    lines = lines_of(tmp_path / "s.db")

    assert lines[1:3] == [
        "first reward  no rollout was judged",
        "last reward   no rollout was judged",
    ]
    assert lines[5].split()[:4] == ["1", "4", "none", "unknown"]


def test_rollouts_of_a_step_that_is_not_whole_are_counted_apart(tmp_path: Path) -> None:
    recorded(tmp_path / "s.db", [(0.0, 0.0, 0.0, 0.0), (1.0, 1.0)])

    lines = lines_of(tmp_path / "s.db")

    assert lines[0] == "steps         1, and 2 rollouts of another"
    assert lines[2].startswith("last reward   0.000")


def test_a_training_without_a_whole_step_has_nothing_to_tell(tmp_path: Path) -> None:
    recorded(tmp_path / "s.db", [(1.0,)])

    assert lines_of(tmp_path / "s.db") == ["steps         0, and 1 rollouts of another"]


def test_many_steps_are_told_together_in_few_lines(tmp_path: Path) -> None:
    rising = [[step / 50] * 4 for step in range(50)]
    recorded(tmp_path / "s.db", rising)

    table = lines_of(tmp_path / "s.db")[5:-1]

    assert [line.split()[:3] for line in table[:2]] == [
        ["1-5", "20", "0.040"],
        ["6-10", "20", "0.140"],
    ]
    assert table[-1].split()[0] == "46-50"
    assert len(table) <= 12


def test_steps_of_different_size_are_told_apart_by_the_samples(tmp_path: Path) -> None:
    resampled = [(0.0, 0.0, 0.0, 0.0, 1.0, 0.0), (1.0, 1.0, 1.0, 0.0)]
    recorded(tmp_path / "s.db", resampled, zero_variance="resample")

    lines = lines_of(tmp_path / "s.db")

    assert [line.split()[:2] for line in lines[5:7]] == [["1", "6"], ["2", "4"]]


def test_a_training_is_shown_while_its_rollouts_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(tmp_path / "s.db", [(0.5,) * 60], zero_variance="resample")

    def parse_and_record(row: Any, *, where: str) -> Sample:
        monkeypatch.undo()
        with Store.open(tmp_path / "s.db") as store:
            run = store.resume_run("t", store.run("t").spec)
            asyncio.run(write_more(run))
        return parse_sample(row, where=where)

    async def write_more(run: Run) -> None:
        async with run.writer() as writer:
            await asyncio.gather(
                *(writer.record(f"2-{place}", rollout(2, place, 1.0)) for place in range(60))
            )

    monkeypatch.setattr("assay.store.result_reader.parse_sample", parse_and_record)

    lines = lines_of(tmp_path / "s.db")

    assert lines[5].split()[:2] == ["1", "60"]


UPDATE = {
    "updated": True,
    "loss": -0.00123456,
    "kl": None,
    "entropy": 3.25,
    "clip_fraction": 0.0,
    "grad_norm": 1.5,
}
NO_UPDATE: dict[str, Any] = {**dict.fromkeys(UPDATE), "updated": False}


def updates_of(path: Path) -> list[list[str]]:
    """The words of the table of updates."""
    lines = lines_of(path)
    (start,) = (at for at, line in enumerate(lines) if " loss " in line)
    return [line.split() for line in lines[start + 1 :]]


def test_what_an_update_measured_is_told_and_what_it_did_not_is_no_zero(tmp_path: Path) -> None:
    scores = [(0.0, 0.5, 0.5, 0.5)] * 3
    recorded(tmp_path / "s.db", scores, {1: UPDATE, 2: NO_UPDATE})

    assert updates_of(tmp_path / "s.db") == [
        ["1", "1", "-0.00123", "-", "3.25", "0", "1.5"],
        ["2", "0", "-", "-", "-", "-", "-"],
        ["3", "-", "-", "-", "-", "-", "-"],
    ]


def test_steps_that_are_told_together_have_the_mean_of_their_updates(tmp_path: Path) -> None:
    scores = [[0.5] * 4] * 24
    measured = {step: {**UPDATE, "loss": float(step)} for step in range(1, 25)}
    recorded(tmp_path / "s.db", scores, {**measured, 2: NO_UPDATE})

    table = updates_of(tmp_path / "s.db")

    assert [line[:3] for line in table[:2]] == [["1-2", "1", "1"], ["3-4", "2", "3.5"]]
    assert len(table) == 12


def test_a_run_that_has_no_metrics_recorded_says_where_they_are(tmp_path: Path) -> None:
    recorded(tmp_path / "s.db", [(0.0, 0.5, 0.5, 0.5)])

    lines = lines_of(tmp_path / "s.db")

    assert lines[-1] == "loss, KL and entropy: see metrics.jsonl in the output folder"
    assert not any("entropy " in line for line in lines[:-1])


def test_metrics_that_are_no_numbers_are_not_told_as_numbers(tmp_path: Path) -> None:
    recorded(tmp_path / "s.db", [(0.0, 0.5, 0.5, 0.5)], {1: {"loss": "high", "updated": "yes"}})

    assert updates_of(tmp_path / "s.db") == [["1", "-", "-", "-", "-", "-", "-"]]


def test_json_has_all_that_each_step_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(tmp_path / "s.db")
    recorded(tmp_path / "s.db", [(0.0, 0.5, 0.5, 0.5)] * 2, {1: {**UPDATE, "other": [1]}})

    assert main(["show", "t", "--store", store, "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)["training"]["steps"]

    assert [step["metrics"] for step in steps] == [{**UPDATE, "other": [1]}, None]


def test_the_command_shows_steps_instead_of_a_mean_over_all_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(tmp_path / "s.db")
    large = dict.fromkeys(("loss", "kl", "entropy", "clip_fraction", "grad_norm"), -1.23456e-100)
    steps = [(0.0, 0.5, "broken", 0.5)] * 3
    recorded(tmp_path / "s.db", steps, {step: {"updated": True, **large} for step in (1, 2, 3)})

    assert main(["show", "t", "--store", store]) == 0
    shown = capsys.readouterr().out
    assert main(["show", "t", "--store", store, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["training"]

    assert "pass@" not in shown
    assert "steps         3\n" in shown
    assert max(cell_len(line) for line in shown.splitlines() if "assay show" not in line) <= 80
    assert shown.count(" -1.23e-100") == 15
    assert [step["failed"] for step in found["steps"]] == [1, 1, 1]
    assert found["steps"][0]["output_tokens"] is None
    assert found["unfinished_rollouts"] == 0


def test_an_evaluation_is_no_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path / "s.db", *samples(good=1.0))

    assert main(["show", "latest", "--store", str(tmp_path / "s.db"), "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["training"] is None


def test_a_reward_without_an_interval_stands_alone() -> None:
    assert format_reward(7.0, None, None) == "7.000"
