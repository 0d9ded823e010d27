"""Strategies for results of every kind: any text, any value, from nothing to very large."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from assay.types import EvaluateResult, Metric, StepOutput

any_text = st.text(st.characters())
"""Any code point, lone surrogates among them."""

long_text = st.builds(
    lambda piece, times: piece * times, any_text, st.sampled_from([1, 1, 1, 40, 100_000])
)
finite = st.floats(allow_nan=False, allow_infinity=False)
names = st.text(max_size=20)
json_leaves = st.none() | st.booleans() | st.integers() | finite | st.text()
odd_leaves = (
    json_leaves
    | st.floats()
    | any_text
    | st.binary()
    | st.sampled_from([datetime(2026, 1, 1, tzinfo=UTC), {1, 2}, object(), 10**4000, int])
)


def containers(leaves: st.SearchStrategy[Any], keys: st.SearchStrategy[Any]) -> Any:
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=8,
    )


odd_values = containers(odd_leaves, any_text | st.integers() | st.none())
json_values = containers(json_leaves, st.text())


@st.composite
def results(draw: st.DrawFn, values: st.SearchStrategy[Any] = odd_values) -> EvaluateResult:
    """Arbitrary results, large ones made by repeating small ones."""
    infos = st.none() | st.dictionaries(names, values, max_size=3)
    metric = st.fixed_dictionaries(
        {"score": st.none() | finite | st.floats(0, 1), "reason": st.none() | any_text},
        optional={"weight": finite, "note": values},
    )
    step = st.builds(
        StepOutput,
        step_index=st.integers() | names,
        base_reward=finite,
        terminated=st.booleans(),
        control_plane_info=infos,
        metrics=st.dictionaries(names, values, max_size=2),
        reason=st.none() | any_text,
    )
    few = draw(st.dictionaries(names, metric, max_size=4))
    times = draw(st.sampled_from([1, 1, 1, 50])) if few else 1
    steps = draw(st.none() | st.lists(step, max_size=3))
    score = draw(st.none() | finite)
    return EvaluateResult(
        score=score,
        is_score_valid=score is not None and draw(st.booleans()),
        reason=draw(st.none() | long_text),
        error=draw(st.none() | long_text),
        metrics={
            f"{name}{n or ''}": Metric(**entry) for name, entry in few.items() for n in range(times)
        },
        step_outputs=None if steps is None else steps * draw(st.sampled_from([1, 1, 3, 3_333])),
        final_control_plane_info=draw(infos),
        trajectory_info=draw(infos),
        **draw(st.dictionaries(st.sampled_from(["note", "measures", "dropped"]), values)),
    )
