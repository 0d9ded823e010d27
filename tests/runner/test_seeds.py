"""Seeds: the environment keeps the row's own in every repeat, sampling has another each time."""

from collections.abc import Sequence
from typing import Any

import pytest

from assay.datasets import load_samples
from assay.environments import BasicEnvironment
from assay.runner import EvalConfig
from assay.runner.seeds import read_sample_seed
from assay.types import Message, Sample
from runner_runs import ECHO, right, run, scripted

EVAL_PROTOCOL = {"dataset_info": {"environment_context": {"seed": 7}}}


class Seeded(BasicEnvironment):
    opened: list[int | None]

    async def open(self, *, seed: int | None = None) -> Sequence[Message]:
        self.opened.append(seed)
        return (Message(role="user", content=f"maze {seed}"),)


def seeds_of(rows: list[dict[str, Any]], **fields: Any) -> tuple[list[int | None], list[Any]]:
    """The seeds that environments were opened with, and those that the model was asked with."""

    class Noting(Seeded):
        opened: list[int | None] = []  # noqa: RUF012  # one list for all environments

    settings = {"endpoint": ECHO, "score_fn": lambda sample: 1.0, "concurrency": 1}
    report = run(rows, EvalConfig(**{**settings, **fields}, environment=lambda _: Noting()))
    asked = [
        call.sampling.get("seed")
        for sample in report.samples
        if sample.trajectory is not None
        for call in sample.trajectory.calls
    ]
    return Noting.opened, asked


@pytest.mark.parametrize("seed", [None, 3])
def test_every_repeat_of_a_row_plays_the_task_of_its_seed(seed: int | None) -> None:
    rows = [{"id": f"p{n}", "question": "Go.", "seed": n} for n in range(3)]

    opened, _ = seeds_of(rows, repeats=3, seed=seed)

    assert sorted(opened, key=str) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("row", [{"seed": 0}, {"seed": 5}, {}])
@pytest.mark.parametrize("seed", [None, 0, 3])
def test_sampling_has_another_seed_in_each_repeat(row: dict[str, int], seed: int | None) -> None:
    config = EvalConfig(score_fn=right, seed=seed)
    samples = [Sample(id=name, input=row) for name in ("a", "b")]

    found = [config.sampling_seed_of(each, repeat) for each in samples for repeat in range(3)]

    if not row and seed is None:
        assert found == [None] * 6
        return
    assert len(set(found)) == 6
    assert found == [
        config.sampling_seed_of(each, repeat) for each in samples for repeat in (0, 1, 2)
    ]


def test_the_model_is_asked_with_the_seed_for_sampling() -> None:
    rows = [{"id": "p", "question": "Go.", "seed": 4}]
    config = EvalConfig(score_fn=right)

    opened, asked = seeds_of(rows, repeats=2, endpoint=scripted("a", loop=True))

    sample = Sample(id="p", input={"seed": 4})
    assert opened == [4, 4]
    assert set(asked) == {config.sampling_seed_of(sample, repeat) for repeat in (0, 1)}


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (Sample(input={"seed": 0}), 0),
        (Sample(input={"seed": 2.0}), 2),
        (Sample(input={"seed": True}), None),
        (Sample(input={"seed": "sunflower"}), None),
        (Sample(input={"seed": 1.5}), None),
        (Sample(metadata=EVAL_PROTOCOL), 7),
        (Sample(input={"seed": 1}, metadata=EVAL_PROTOCOL), 1),
        (Sample(metadata={"dataset_info": {"environment_context": {"seed": 0}}}), 0),
        (Sample(metadata={"dataset_info": "none"}), None),
        (Sample(metadata={"seed": 3}), None),
        (Sample(input={"input_metadata": EVAL_PROTOCOL}), 7),
        (Sample(input={"input_metadata": None}), None),
    ],
)
def test_a_row_names_its_seed_itself_or_in_its_environment_context(
    sample: Sample, expected: int | None
) -> None:
    assert read_sample_seed(sample) == expected


def test_the_seed_of_an_eval_protocol_row_reaches_the_environment() -> None:
    row = {
        "messages": [{"role": "user", "content": "Go."}],
        "input_metadata": {"row_id": "r1", **EVAL_PROTOCOL},
    }

    (sample,) = load_samples([row])
    opened, _ = seeds_of([row], repeats=2)

    assert sample.id == "r1"
    assert opened == [7, 7]


def test_the_seed_of_an_eval_protocol_row_is_applied_in_any_layout() -> None:
    opened, _ = seeds_of([{"question": "Go.", "input_metadata": EVAL_PROTOCOL}], repeats=2)

    assert opened == [7, 7]
