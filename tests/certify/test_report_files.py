"""The files of a certification: whole, readable, and in place of older ones."""

import json
from pathlib import Path

import pytest

from assay.certify.certificate import Resource, Statement
from assay.certify.certified import CertificationResult
from assay.certify.report_files import IssueOptions, write_atomically, write_reports
from assay.certify.signatures import generate_key, read_signing_key
from assay.errors import ConfigError
from bars import certification, outcome


def names(paths: tuple[Path, ...]) -> list[str]:
    return [path.name for path in paths]


def test_the_result_is_written_as_json_that_reads_back(tmp_path: Path) -> None:
    result = certification()

    path, *_ = write_reports(result, tmp_path / "new" / "out")

    assert path.name == "result.json"
    assert CertificationResult.model_validate_json(path.read_text()) == result


def test_a_result_has_a_card_junit_and_a_certificate_beside_it(tmp_path: Path) -> None:
    image = Resource(name="image", digest={"sha256": "ef" * 32})
    options = IssueOptions(valid_days=7, subjects=(image,))

    written = write_reports(certification(), tmp_path, options=options)

    assert names(written) == ["result.json", "card.md", "junit.xml", "certificate.json"]
    assert sorted(names(written)) == sorted(each.name for each in tmp_path.iterdir())
    found = Statement.model_validate_json(written[-1].read_text())
    assert found.subject[-1] == image
    assert (found.certification.valid_until - found.certification.finished).days == 7


def test_with_a_key_the_same_certificate_is_also_there_signed(tmp_path: Path) -> None:
    key = read_signing_key(generate_key(tmp_path / "key.pem").private)

    written = write_reports(certification(), tmp_path / "out", options=IssueOptions(key=key))

    assert names(written)[-2:] == ["certificate.json", "certificate.dsse.json"]
    (signature,) = json.loads(written[-1].read_text())["signatures"]
    assert signature["keyid"] == key.key_id


def test_a_no_is_certified_as_well(tmp_path: Path) -> None:
    written = write_reports(certification(outcome(3)), tmp_path)

    assert Statement.model_validate_json(written[-1].read_text()).predicate.result == "FAILED"


@pytest.mark.parametrize(
    "result",
    [certification(deviations=["only 3 samples"]), certification(outcome(unscored=1))],
    ids=["deviations", "what could not be told"],
)
def test_where_there_is_no_certificate_an_older_one_does_not_stay(
    result: CertificationResult, tmp_path: Path
) -> None:
    key = read_signing_key(generate_key(tmp_path / "key.pem").private)
    write_reports(certification(), tmp_path / "out", options=IssueOptions(key=key))

    written = write_reports(result, tmp_path / "out", options=IssueOptions(key=key))

    assert names(written) == ["result.json", "card.md", "junit.xml"]
    assert len(list((tmp_path / "out").iterdir())) == 3


def test_an_unsigned_certificate_does_not_stand_beside_an_older_signed_one(tmp_path: Path) -> None:
    key = read_signing_key(generate_key(tmp_path / "key.pem").private)
    write_reports(certification(), tmp_path / "out", options=IssueOptions(key=key))

    write_reports(certification(), tmp_path / "out")

    assert not (tmp_path / "out" / "certificate.dsse.json").exists()


@pytest.mark.parametrize("days", [0, -1, 3651])
def test_a_certificate_holds_for_a_sensible_time(days: int) -> None:
    with pytest.raises(ConfigError, match="is not between 1 and 3650"):
        IssueOptions(valid_days=days)


def test_a_file_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")

    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "half \ud800")

    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["result.json"]
