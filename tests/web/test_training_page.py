"""The page of a training: curves, rollouts with advantages, and the reward before and after."""

from pathlib import Path

import pytest

from assay.store import RunSpec, Store
from assay.web import ViewServer
from assay.web.training_page import TrainingView, read_training_page
from page_requests import ask, ask_json, build_request
from recorded_pages import RecordedPages
from recorded_work import record_training


def read(store: Store, **given: str) -> TrainingView:
    return read_training_page(store, build_request(*given.items(), run_id="t"))


def test_steps_have_rewards_and_metrics(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        record_training(store, [[0.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 0.0]])
        view = read(store)

    assert [step.reward for step in view.steps] == [0.25, 0.75]
    assert [point.value for point in view.curves["KL divergence"]] == [0.1, 0.2]
    assert "Entropy" not in view.curves
    assert view.reward_curve[1].link == "/training/t?step=2#rollouts"
    assert view.rollouts == ()


@pytest.mark.parametrize("zero_variance", ["keep", "resample"])
def test_rollouts_of_a_step_have_their_advantage(tmp_path: Path, zero_variance: str) -> None:
    with Store.open(tmp_path / "s.db") as store:
        record_training(
            store,
            [[0.0, 0.0, 0.0, 0.0], [1.0, 0.0, None, 1.0]],
            zero_variance=zero_variance,
            advantage="mean",
        )
        view = read(store, step="2")

    assert [each.reward for each in view.rollouts] == [1.0, 0.0, None, 1.0]
    assert [each.advantage for each in view.rollouts] == [0.5, -0.5, None, 0.0]
    assert view.rollouts[0].answer == "answer 2"


def test_the_first_steps_are_compared_with_the_last(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        record_training(store, [[0.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 0.0]])
        change = read(store).change

    assert change is not None
    assert (change.steps, change.before, change.after) == (1, 0.25, 0.75)
    assert (change.pairs, change.difference) == (2, 0.5)
    assert change.conclusion == "too few to tell"


def test_the_page_draws_curves(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        record_training(store, [[0.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 0.0]])
        with ViewServer(store) as viewer:
            status, _, page = ask(viewer, "/training/t?step=1")
            view = ask_json(viewer, "/api/training/t")

    assert status == 200
    assert "Rollouts of step 1" in page
    assert page.count('class="curve"') == 3
    assert view["steps"][0]["metrics"] == {"kl": 0.1, "entropy": None, "tokens_per_s": 50.0}


def test_evaluations_are_drawn_and_lead_to_their_runs(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        record_training(store, [[0.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 0.0]], eval_every=2)
        for step in (2, 0):
            config = {"training_run": "t", "training_step": step}
            spec = RunSpec(f"step-{step}-of-t", "grpo", config, "f", "d")
            store.start_run(spec).finish("completed")
        # Of another training, whose id ends in the same way.
        store.start_run(RunSpec("step-4-of-t", "grpo", {}, "f", "d")).finish("completed")

        view = read(store)

    assert [(each.step, each.score) for each in view.evaluations] == [(0, None), (2, None)]
    assert [point.link for point in view.evaluation_curve] == [
        "/run/step-0-of-t",
        "/run/step-2-of-t",
    ]


def test_another_run_is_not_a_training(viewer: ViewServer, pages: RecordedPages) -> None:
    assert ask(viewer, f"/training/{pages.baseline}")[0] == 404


def test_a_wrong_step_is_refused(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        record_training(store, [[0.0, 0.0, 0.0, 1.0]])
        with ViewServer(store) as viewer:
            assert ask(viewer, "/training/t?step=x")[0] == 400
            assert "This step has no rollouts" in ask(viewer, "/training/t?step=9")[2]
