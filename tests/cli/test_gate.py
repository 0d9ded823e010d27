"""`assay gate` from the inside: it says no, and it says when it cannot tell."""

import asyncio
import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from assay.cli.gate import main
from assay.errors import ConfigError
from assay.runner import Stop, rescore
from assay.store import RunSpec, Store
from assay.types import EvaluateResult, Sample, Status
from recorded_runs import record, samples, stopped

NAMES = [f"s{number}" for number in range(10)]


def given(store: Path, **options: Any) -> Namespace:
    plain: dict[str, Any] = {
        "run": "latest",
        "threshold": None,
        "proven": False,
        "baseline": None,
        "tolerance": None,
        "max_not_judged": 0.05,
        "allow_unfinished": False,
        "json": False,
    }
    return Namespace(store=str(store), **{**plain, **options})


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store whose newest run has a mean of 0.9."""
    path = tmp_path / "a.db"
    record(path, *samples(**{**dict.fromkeys(NAMES, 1.0), "s0": 0.0}), name="nine")
    return path


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"threshold": 0.9}, 0),
        ({"threshold": 0.91}, 1),
        ({"threshold": 0.9, "proven": True}, 1),
        ({"threshold": 0.5, "proven": True}, 0),
    ],
)
def test_a_run_is_held_to_the_threshold(options: dict[str, Any], status: int, store: Path) -> None:
    assert main(given(store, **options)) == status


def test_a_run_is_held_to_a_baseline(store: Path) -> None:
    record(store, *samples(**dict.fromkeys(NAMES, 0.0)), name="bad")

    assert main(given(store, run="bad", baseline="nine")) == 1
    assert main(given(store, run="nine", baseline="bad")) == 0
    assert main(given(store, run="bad", baseline="nine", tolerance=1.0)) == 0


def test_a_run_is_no_baseline_of_itself(store: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"--baseline latest: the baseline is the run to judge itself, 'nine-"
    ):
        main(given(store, run="nine", baseline="latest"))


def test_too_few_judged_samples_cannot_tell(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(store, *samples(a=1.0, b=None))

    assert main(given(store, threshold=0.5)) == 3
    assert "1 of 2 results not judged" in capsys.readouterr().out
    assert main(given(store, threshold=0.5, max_not_judged=0.5)) == 0


def test_a_run_that_was_not_finished_does_not_pass(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half = record(store, *samples(**dict.fromkeys(NAMES, 1.0)), stop=stopped())

    assert main(given(store, threshold=0.5)) == 3

    printed = capsys.readouterr().out
    assert printed.startswith(f"run           {half}\ngate          could not tell\nfinished ")
    assert "the run is interrupted, with 0 of 10 results" in " ".join(printed.split())


def test_an_unfinished_run_is_judged_when_that_is_allowed(store: Path) -> None:
    stop = Stop(grace_s=30)

    def last_to_be_scored(sample: Sample) -> float:
        stop.request()
        return 1.0

    record(store, *samples(a=1.0, b=1.0), score_fn=last_to_be_scored, stop=stop)

    assert main(given(store, threshold=0.5)) == 3
    assert main(given(store, threshold=0.5, allow_unfinished=True)) == 0


def test_a_run_that_names_itself_as_its_source_is_judged(store: Path) -> None:
    async def write(opened: Store) -> None:
        config = {"rescored": "loop"}
        run = opened.start_run(
            RunSpec(id="loop", name="loop", config=config, config_fingerprint="f", dataset="d")
        )
        async with run.writer() as writer:
            for each in samples(a=1.0, b=1.0):
                done = {"score": EvaluateResult(score=1.0), "status": Status.COMPLETED}
                await writer.record(each.id, each.model_copy(update=done))
        run.finish("completed")

    with Store.open(store) as opened:
        asyncio.run(write(opened))

    assert main(given(store, run="loop", threshold=0.5)) == 0


def test_scores_of_an_unfinished_run_do_not_pass(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stop = Stop(grace_s=30)

    def stop_after_one(sample: Sample) -> float:
        stop.request()
        return 0.0

    half = record(store, *samples(a=0.0, b=0.0), score_fn=stop_after_one, stop=stop)
    asyncio.run(rescore(half, lambda sample: 1.0, store=store))

    assert main(given(store, threshold=0.5)) == 3
    printed = " ".join(capsys.readouterr().out.split())
    assert f"run '{half}', whose rollouts were scored again, is interrupted, with" in printed
    assert main(given(store, threshold=0.5, allow_unfinished=True)) == 0
    with Store.open(store) as opened:
        opened.delete_run(half)
    assert main(given(store, threshold=0.5)) == 0


def test_json_has_every_check(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(given(store, threshold=0.95, json=True)) == 1

    said = json.loads(capsys.readouterr().out)
    assert (said["outcome"], said["exit_status"]) == ("failed", 1)
    assert [check["name"] for check in said["checks"]] == ["judged", "threshold"]


def test_what_has_no_score_is_told_of_a_run_that_passes(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(store, *samples(a=1.0, b=1.0, c=1.0, d=None))

    assert main(given(store, threshold=0.5, max_not_judged=0.25)) == 0
    assert "unscored      1 of 4 results (25.0 %), at most 25 % allowed" in capsys.readouterr().out

    main(given(store, threshold=0.5, max_not_judged=0.25, json=True))
    told = json.loads(capsys.readouterr().out)["unscored"]
    assert told == {"count": 1, "results": 4, "share": 0.25, "allowed": 0.25}


def test_a_gate_without_a_bar_is_refused(store: Path) -> None:
    with pytest.raises(ConfigError, match="the gate has no criterion"):
        main(given(store))


def test_a_proof_is_asked_on_the_scale_of_the_run(tmp_path: Path) -> None:
    perfect = samples(**dict.fromkeys(NAMES, 1.0))
    record(tmp_path / "a.db", *perfect, name="share")
    record(tmp_path / "a.db", *perfect, name="reward", bounds=(-1, 1))

    assert main(given(tmp_path / "a.db", run="share", threshold=0.5, proven=True)) == 0
    assert main(given(tmp_path / "a.db", run="reward", threshold=0.5, proven=True)) == 1


def test_a_baseline_of_another_scale_is_refused(store: Path) -> None:
    record(store, *samples(**dict.fromkeys(NAMES, 1.0)), name="reward", bounds=(-1, 1))

    with pytest.raises(ConfigError, match="different scales"):
        main(given(store, run="reward", baseline="nine"))


def test_a_gate_that_does_not_pass_names_the_worst_samples(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judged = record(store, *samples(good=1.0, bad=0.0))

    assert main(given(store, threshold=0.9)) == 1
    printed = capsys.readouterr().out
    main(given(store, threshold=0.9, json=True))
    said = json.loads(capsys.readouterr().out)
    assert main(given(store, threshold=0.5)) == 0

    assert "┃ threshold 0.900" in printed
    assert "worst samples\n  0.000  bad? " in printed
    assert f"  assay show {judged} --store {store}\n" in printed
    assert [each["label"] for each in said["worst"]] == ["bad?"]
    assert "worst samples" not in capsys.readouterr().out


def test_samples_of_the_best_score_are_not_named_the_worst(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(store, *samples(good=1.0, best=1.0, unjudged=None))

    assert main(given(store, threshold=0.5)) == 3
    unjudged = capsys.readouterr().out
    record(store, *samples(good=1.0, best=1.0))
    assert main(given(store, threshold=1.5)) == 1
    perfect = capsys.readouterr().out

    assert "worst samples\n  not judged  unjudged? " in unjudged
    assert "good?" not in unjudged
    assert "worst samples" not in perfect
    assert "next:\n  assay show " in perfect
