"""The report as one file: complete, limited in size with notes, private, and never overwritten."""

import base64
import hashlib
import re
from pathlib import Path

import pytest

from assay.errors import ConfigError
from assay.store import Store
from assay.types import EvaluateResult, Sample, Status
from assay.web import static_report
from assay.web.static_files import read_static_files
from assay.web.static_report import MAX_REPORT_BYTES, render_static_report, write_static_report
from make import asked, said, sample
from recorded_pages import HOSTILE_TEXTS, RecordedPages, record_run, ticket


def long_sample(index: int, size: int) -> Sample:
    return sample(
        asked(f"Question {index}? " + "why " * 20),
        said("because " * size),
        id=f"q{index}",
        index=index,
        score=EvaluateResult(score=index % 2, reason="a reason of some length " * 5),
        status=Status.COMPLETED,
    )


def test_a_report_has_runs_samples_and_their_comparison(
    page_store: Store, pages: RecordedPages
) -> None:
    text = render_static_report(page_store, [pages.baseline, pages.changed])

    assert "flipped" in text
    assert text.count('class="report-sample"') == 80
    assert "You are a support agent." in text
    assert "are not in this file" not in text
    assert "agent: TimeoutError: no answer within 60 s" in text


def test_the_policy_allows_its_own_style_and_script_only(
    page_store: Store, pages: RecordedPages
) -> None:
    text = render_static_report(page_store, [pages.baseline])

    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src &#39;none&#39;;")
    for tag in ("style", "script"):
        found = re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", text, re.DOTALL)
        assert len(found) == 1
        digest = base64.b64encode(hashlib.sha256(found[0].encode()).digest()).decode()
        assert f"sha256-{digest}" in policy[1]
    assert "http://" not in text.replace("http://127.0.0.1:9", "")
    assert "src=" not in re.sub(r"<style.*?</style>|<script.*?</script>", "", text, flags=re.DOTALL)


def test_no_file_of_the_package_ends_its_own_element() -> None:
    for name, content in read_static_files().items():
        assert b"</script" not in content.lower(), name
        assert b"</style" not in content.lower(), name


def test_a_thousand_samples_fit_into_the_limit(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        record_run(store, "a", (long_sample(index, 900) for index in range(1000)))
        text = render_static_report(store, ["a"])

    assert len(text.encode()) <= MAX_REPORT_BYTES
    assert text.count('class="report-sample"') == 1000
    assert re.search(r"\d+ transcripts are not in this file", text)
    assert text.count("The transcript is not in this file") < 900


def test_samples_beyond_the_limit_are_left_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(static_report, "MAX_REPORT_BYTES", 120_000)
    with Store.open(tmp_path / "s.db") as store:
        record_run(store, "a", (long_sample(index, 10) for index in range(300)))
        text = render_static_report(store, ["a"])

    shown = text.count('class="report-sample"')
    assert 0 < shown < 150
    assert len(text.encode()) <= 120_000
    assert f"{300 - shown} more samples are not in this file" in text
    # The lowest scores come first.
    assert 'class="tag pass"' not in text.split('class="report-samples"')[1]


def test_a_long_turn_is_cut_with_a_note(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        record_run(store, "a", [long_sample(1, 5000)])
        text = render_static_report(store, ["a"])

    assert "36,000 more characters are not in this file" in text


def test_hostile_texts_stay_text(page_store: Store, pages: RecordedPages) -> None:
    text = render_static_report(page_store, [pages.hostile])

    body = text.split("</head>")[1]
    assert body.count("<script") == 1
    assert "<img" not in body
    assert HOSTILE_TEXTS[3] not in body
    assert "\u202e" not in body
    assert "\x1b" not in body


def test_the_file_is_private_and_not_overwritten(
    page_store: Store, pages: RecordedPages, tmp_path: Path
) -> None:
    target = tmp_path / "report.html"

    size = write_static_report(page_store, [pages.repeats], target)

    assert target.stat().st_size == size
    assert target.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConfigError, match="already exists"):
        write_static_report(page_store, [pages.repeats], target)
    write_static_report(page_store, [pages.repeats], target, force=True)
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("place", [".", "missing/report.html"])
def test_a_target_that_cannot_be_a_file_is_refused(
    place: str, page_store: Store, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"is a folder|does not exist"):
        write_static_report(page_store, ["sums-1"], tmp_path / place)


def test_runs_without_a_common_sample_are_shown_without_flips(
    page_store: Store, pages: RecordedPages
) -> None:
    text = render_static_report(page_store, [pages.baseline, pages.repeats])

    assert "40</b> missing in this run" in text


def test_a_report_without_comparison(page_store: Store, pages: RecordedPages) -> None:
    text = render_static_report(page_store, [pages.baseline, pages.changed], compared=False)

    assert 'id="compare"' not in text


def test_an_empty_run_has_a_report(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        record_run(store, "a", [])
        record_run(store, "b", [ticket(1)], finish=True)

        assert "unscored" in render_static_report(store, ["a"])


def test_the_worst_scores_come_first_where_low_ones_are_good(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        samples = (
            sample(
                asked(f"Question {index}?"),
                said("so"),
                id=f"q{index}",
                index=index,
                score=EvaluateResult(score=score),
                status=Status.COMPLETED,
                metadata={"test": "test_a", "threshold": 0.5},
            )
            for index, score in enumerate((0.0, 0.9, 0.0, 0.0))
        )
        record_run(store, "a", samples, config={"direction": "min"})
        text = render_static_report(store, ["a"])

    tags = re.findall(r'<summary data-open><span class="tag (\w+)">([0-9.]+)</span>', text)
    assert tags == [("fail", "0.900"), *[("pass", "0.000")] * 3]
    assert "passes threshold 0.500" in text
