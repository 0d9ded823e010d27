"""JUnit XML: a case for each criterion, and nothing that breaks the file."""

from xml.etree import ElementTree as Xml

from assay.certify.certified import CertificationResult
from assay.certify.junit import junit_xml
from bars import certification, outcome

EVIL = "]]></x>\x00\x1b[2J\ufffe<script>&\"'"


def suite(result: CertificationResult) -> Xml.Element:
    found = Xml.fromstring(junit_xml(result).encode()).find("testsuite")
    assert found is not None
    return found


def said(case: Xml.Element) -> dict[str, str | None]:
    return {each.attrib["name"]: each.attrib["value"] for each in case.iter("property")}


def test_a_strict_miss_fails_what_is_unscored_errs_and_the_rest_passes() -> None:
    found = suite(
        certification(
            outcome(),
            outcome(3, name="wrong"),
            outcome(unscored=2, name="unknown"),
            outcome(3, name="rude", strict=False),
        )
    )

    assert (found.get("tests"), found.get("failures"), found.get("errors")) == ("4", "1", "1")
    kinds = {
        case.get("name"): [child.tag for child in case if child.tag != "properties"]
        for case in found.iter("testcase")
    }
    assert kinds == {
        "exact_answer": ["system-out"],
        "wrong": ["failure"],
        "unknown": ["error"],
        "rude": ["system-out"],
    }
    messages = [child.get("message") for child in found.iter() if child.get("message")]
    assert messages == [
        "mean 0.100 is below 0.900; refuted",
        "2 of 32 samples could not be scored",
    ]


def test_a_warning_is_a_property_and_a_note() -> None:
    (case,) = suite(certification(outcome(3, name="rude", strict=False))).iter("testcase")

    assert said(case)["warning"] == "yes"
    assert (case.findtext("system-out") or "").startswith("warning: mean 0.100")


def test_what_could_not_be_measured_warns_where_it_is_not_strict() -> None:
    found = suite(certification(outcome(), outcome(unscored=2, name="odd", strict=False)))

    assert (found.get("failures"), found.get("errors")) == ("0", "0")
    assert said(list(found.iter("testcase"))[1])["status"] == "error"


def test_hostile_text_stays_text() -> None:
    result = certification(outcome(3, name=EVIL))
    agent = result.agent.model_copy(update={"id": EVIL})

    found = suite(result.model_copy(update={"agent": agent, "run": EVIL}))

    (case,) = found.iter("testcase")
    shown = "]]></x>\ufffd\ufffd[2J\ufffd<script>&\"'"
    assert case.get("name") == shown
    assert found.get("name") == f"certify {shown}"
    assert {element.tag for element in found.iter()} == {
        "testsuite",
        "testcase",
        "properties",
        "property",
        "failure",
    }
