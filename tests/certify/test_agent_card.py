"""The agent card: everything a reader needs, and no markup but its own."""

import math
import re

from assay.certify.agent_card import card_markdown, summary_markdown
from assay.certify.criterion_decisions import Timings, compute_latency_figures, decide_latency
from assay.types.manifest import AgentDefinition
from bars import SHA, certification, latency_bar, outcome

EVIL = "x](javascript:alert(1)) | y |\n# head\n<script>alert(1)</script> \x1b[2J @all"


def definition(**fields: object) -> AgentDefinition:
    given = {"id": "helper", "name": "Helper", "role": "One who helps.", "goal": "Help."}
    return AgentDefinition.model_validate({**given, **fields})


def test_a_card_shows_who_was_held_to_what_and_what_came_of_it() -> None:
    judge = {"asked": "mock:fixed", "returned": ["fixed-1"], "calls": 30}
    result = certification(
        outcome(),
        outcome(3, name="polite", strict=False),
        judge=judge,
        seed=7,
        warnings=[{"code": "self_judge", "text": "it judges itself"}],
    )
    tools = ["search", {"type": "remote", "uri": "https://x/y"}]

    card = card_markdown(result, definition(backstory="Long ago.", tools=tools, skills=["sums"]))

    for line in (
        "# Helper",
        "⚠️ **WARNED**",
        "| role | One who helps. |",
        "| tools | search, https://x/y |",
        "| backstory | Long ago. |",
        "| exact\\_answer | 1.000 | ≥ 0.9 | yes | 0.884 to 1.000 | proven at 95 %, gate point | 30 "
        "| ✅ mean 1.000 reaches 0.900; proven |",
        "| polite | 0.100 | ≥ 0.9 | no | 0.021 to 0.265 | refuted at 95 %, gate point | 30 "
        "| ⚠️ mean 0.100 is below 0.900; refuted |",
        "- polite: It is right.",
        "| 100.000 | 100.000 | 100.000 | 100.000 | 100.000 | 100.000 |",
        "| dataset | golden.jsonl, 30 samples |",
        f"| dataset digest | sha256:{SHA} |",
        "| judged by | fixed-1 |",
        "| seed | 7 |",
        "- it judges itself",
    ):
        assert line in card.splitlines()


def test_a_card_can_be_made_of_the_result_alone() -> None:
    card = card_markdown(certification())

    assert "| judge | none: code measures everything |" in card
    assert "role" not in card
    assert "## Notes" not in card


def test_times_without_end_and_calls_that_failed_are_shown() -> None:
    timings = Timings([[0.001]] * 20 + [[math.inf]] * 10)
    late = decide_latency(latency_bar(), timings, agent_errors=10)

    card = card_markdown(certification(late, latency=compute_latency_figures(timings, "p95")))

    assert "| 1.000 | never | never | never | never | never |" in card
    assert "| latency\\_p95\\_ms | never | ≤ 1000 ms | yes |" in card
    assert "30, 10 agent errors" in card
    assert "10 failed" in card


def test_deviations_are_shown_as_not_certifiable() -> None:
    card = card_markdown(certification(deviations=["only 3 samples"]))

    assert "Not certifiable: only 3 samples" in card


def test_hostile_text_stays_text() -> None:
    result = certification(
        outcome(3, name=EVIL, description=EVIL),
        dataset={"uri": EVIL, "sha256": SHA, "rows": 30},
        deviations=[EVIL],
        warnings=[{"code": "note", "text": EVIL}],
    )
    agent = result.agent.model_copy(update={"name": EVIL, "runner": EVIL, "id": EVIL})
    result = result.model_copy(update={"agent": agent, "run": EVIL})

    for page in (card_markdown(result, definition(role=EVIL, goal=EVIL)), summary_markdown(result)):
        assert "<script" not in page
        assert "\x1b" not in page
        assert "](javascript" not in page.replace("\\]", "")
        assert not re.search(r"^# head", page, re.MULTILINE)
        assert not re.search(r"(?<!\\)@all", page)
        rows = [line for line in page.splitlines() if line.startswith("|")]
        widths = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
        assert widths <= {3, 7, 9}


def test_the_summary_has_the_verdict_and_the_criteria() -> None:
    page = summary_markdown(certification(outcome(3)))

    assert page.startswith("### Certification of helper\n\n❌ **FAILED**\n\n| criterion | value |")
    assert "❌ mean 0.100 is below 0.900; refuted" in page
