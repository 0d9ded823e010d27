"""The options of a session: what could only go wrong later is refused at once."""

from dataclasses import replace
from pathlib import Path

import pytest

from assay.pytest_plugin.session_settings import Settings, check_settings

GOOD = Settings(
    summary=Path("out/summary.json"),
    baseline=None,
    tolerance=None,
    update=False,
    store="store.db",
    store_must_be_named=False,
    max_samples=None,
    model=None,
)


def refused(settings: Settings) -> str:
    with pytest.raises(pytest.UsageError) as caught:
        check_settings(settings)
    return str(caught.value)


def test_the_defaults_are_fine() -> None:
    check_settings(GOOD)
    check_settings(
        replace(GOOD, baseline=Path("base.json"), update=True, tolerance=0.0, max_samples=1)
    )


def test_a_tolerance_and_an_update_need_a_baseline() -> None:
    assert "need --assay-baseline" in refused(replace(GOOD, tolerance=0.1))
    assert "need --assay-baseline" in refused(replace(GOOD, update=True))


@pytest.mark.parametrize("tolerance", [-0.1, float("nan"), float("inf")])
def test_a_tolerance_is_a_number_from_0_on(tolerance: float) -> None:
    asked = replace(GOOD, baseline=Path("base.json"), update=True, tolerance=tolerance)

    assert "--assay-tolerance is" in refused(asked)


def test_a_limit_below_1_would_evaluate_nothing() -> None:
    assert "--assay-max-samples is 0" in refused(replace(GOOD, max_samples=0))


def test_a_session_is_not_compared_with_itself() -> None:
    same = "--assay-baseline and --assay-summary are the same file"

    assert refused(replace(GOOD, baseline=GOOD.summary)) == same
    assert refused(replace(GOOD, baseline=Path("out/../out/summary.txt"))) == same


def test_the_summary_is_not_written_over_its_samples() -> None:
    assert "a summary cannot end in .jsonl" in refused(replace(GOOD, summary=Path("s.jsonl")))


def test_the_summary_does_not_replace_a_folder_or_a_device(tmp_path: Path) -> None:
    assert f"{tmp_path} is a folder" in refused(replace(GOOD, summary=tmp_path))
    assert "is a device or a pipe" in refused(replace(GOOD, summary=Path("/dev/null")))
    updated = replace(GOOD, baseline=Path("/dev/null"), update=True)
    assert "is a device or a pipe" in refused(updated)


def test_a_baseline_must_be_there_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "base.json"

    assert "base.json does not exist" in refused(replace(GOOD, baseline=path))
    path.write_text("{")
    assert "is not a summary" in refused(replace(GOOD, baseline=path))
    path.write_text('{"format": 1, "tests": []}')
    assert "the file with the samples of the summary is missing" in refused(
        replace(GOOD, baseline=path)
    )
