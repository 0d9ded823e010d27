"""The result of a certification as JUnit XML: one test case for each criterion."""

from xml.etree import ElementTree as Xml

from assay.stats import clean_text, format_number

from .certified import CertificationResult
from .criteria import CriterionOutcome, CriterionStatus

_MAX_XML_TEXT = 2000


def junit_xml(result: CertificationResult) -> str:
    """Render the result as a JUnit test suite."""
    blocking = [outcome.status for outcome in result.outcomes if outcome.blocks]
    suite = Xml.Element(
        "testsuite",
        name=_clean_xml_text(f"certify {result.agent.id}"),
        timestamp=result.started.isoformat(timespec="seconds"),
        time=f"{(result.finished - result.started).total_seconds():.3f}",
        tests=str(len(result.outcomes)),
        failures=str(blocking.count(CriterionStatus.FAILED)),
        errors=str(blocking.count(CriterionStatus.ERROR)),
        skipped="0",
    )
    about = {
        "verdict": result.verdict.value,
        "deviations": "; ".join(result.deviations) or "none",
        "definition_sha256": result.agent.definition_sha256,
        "dataset": result.dataset.uri,
        "dataset_sha256": result.dataset.sha256,
        "run": result.run,
    }
    _add_properties(suite, about)
    for outcome in result.outcomes:
        _add_test_case(suite, outcome, result.agent.id)
    top = Xml.Element("testsuites", name="assay certify")
    top.append(suite)
    Xml.indent(top)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{Xml.tostring(top, encoding="unicode")}\n'


def _add_test_case(suite: Xml.Element, outcome: CriterionOutcome, agent: str) -> None:
    case = Xml.SubElement(
        suite,
        "testcase",
        classname=_clean_xml_text(f"certify.{agent}"),
        name=_clean_xml_text(outcome.name),
    )
    warned = not outcome.strict and outcome.status is not CriterionStatus.PASSED
    properties = {
        "status": outcome.status.value,
        "warning": "yes" if warned else "no",
        "strict": "yes" if outcome.strict else "no",
        "direction": outcome.direction,
        "value": "never" if "value" in outcome.infinite else format_number(outcome.value),
        "threshold": f"{outcome.threshold!r}",
        "evidence": outcome.evidence.value if outcome.evidence else "none",
        "samples": str(outcome.samples),
        "unscored": str(outcome.unscored),
        "agent_errors": str(outcome.agent_errors),
    }
    _add_properties(case, properties)
    if outcome.blocks:
        is_error = outcome.status is CriterionStatus.ERROR
        tag, kind = ("error", "unscored") if is_error else ("failure", "criterion")
        Xml.SubElement(case, tag, message=_clean_xml_text(outcome.reason), type=kind)
    else:
        # JUnit has no warnings: a missed criterion that is not strict passes with a note.
        note = f"warning: {outcome.reason}" if warned else outcome.reason
        Xml.SubElement(case, "system-out").text = _clean_xml_text(note)


def _add_properties(element: Xml.Element, values: dict[str, str]) -> None:
    properties = Xml.SubElement(element, "properties")
    for name, value in values.items():
        Xml.SubElement(properties, "property", name=name, value=_clean_xml_text(value))


def _clean_xml_text(text: str) -> str:
    # Control characters are invalid in XML, even escaped.
    return clean_text(text, _MAX_XML_TEXT)
