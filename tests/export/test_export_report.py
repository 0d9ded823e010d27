"""The account of an export: counted by reason and by kind, in bounded memory."""

import json

from assay.export.export_report import OTHER_REASONS, ExportReport
from assay.formats.conversion import Dropped


def test_losses_are_counted_by_kind_whatever_their_place() -> None:
    report = ExportReport("trl-sft")

    report.count_dropped(
        (Dropped("messages[0].model", "gone"), Dropped("messages[12].model", "gone"))
    )
    report.count_dropped((Dropped("messages[0].tool_calls[1].raw_arguments", "spelling"),))

    assert report.lost == {
        "messages[].model: gone": 2,
        "messages[].tool_calls[].raw_arguments: spelling": 1,
    }


def test_reasons_without_end_are_counted_together() -> None:
    report = ExportReport("trl-sft")

    for number in range(1000):
        report.leave_out(f"s{number}", f"reason {number}")
        report.count_dropped((Dropped("x", f"what {number}"),))

    assert report.left_out.total() == 1000
    assert report.left_out[OTHER_REASONS] == 950
    assert report.lost.total() == 1000
    assert len(report.examples) == 20


def test_the_account_is_plain_json() -> None:
    report = ExportReport("trl-sft", read=1)
    report.leave_out("a", "failed", "why")

    plain = json.loads(json.dumps(report.json()))

    assert plain["left_out"] == {"failed": 1}
    assert plain["examples"] == [{"sample": "a", "reason": "failed", "detail": "why"}]
