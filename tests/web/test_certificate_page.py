"""Certificates of a project: only files that were found, verified against their manifest."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.exceptions import HTTPException

from assay.store import Store
from assay.web import ViewServer, ViewSettings
from assay.web.certificate_page import CertificateView, read_certificates
from certificates import change, issued
from certifying import RIGHT, profile, right, wrong
from page_requests import ask, build_request


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "pages.db")


def read(store: Store, project: Path | None, **given: str) -> CertificateView:
    with store:
        return read_certificates(store, build_request(*given.items(), project=project))


def test_certificates_of_the_project_are_listed(tmp_path: Path, store: Store) -> None:
    issued(tmp_path)

    view = read(store, tmp_path)

    files = [each.file for each in view.certificates]
    assert files == ["out/certificate.dsse.json", "out/certificate.json"]
    assert [(each.agent, each.verdict) for each in view.certificates] == [("Helper", "PASSED")] * 2
    assert all(each.is_valid for each in view.certificates)


def test_a_certificate_shows_criteria_evidence_tries_and_checks(
    tmp_path: Path, store: Store
) -> None:
    issued(tmp_path)

    view = read(store, tmp_path, file="out/certificate.dsse.json")

    criterion = view.criteria[0]
    assert (criterion.name, criterion.status, criterion.value) == ("exact_answer", "passed", 1.0)
    assert criterion.evidence == "inconclusive"
    assert dict(view.facts)["tries"].startswith("run 1 on this dataset")
    assert view.verification is not None
    assert view.verification.signature == "not checked"
    assert "signature" in {name for name, *_ in view.verification.checks}


def test_a_changed_manifest_does_not_verify(tmp_path: Path, store: Store) -> None:
    issued(tmp_path)
    manifest = tmp_path / "agent.yaml"
    manifest.write_text(manifest.read_text().replace("It is right.", "It is wrong."))

    view = read(store, tmp_path, file="out/certificate.json")

    assert view.verification is not None
    assert view.verification.verified is False


def test_an_edited_certificate_is_not_shown_as_one(tmp_path: Path, store: Store) -> None:
    path = issued(tmp_path, sign=False)
    change(path, "predicate", "certification", "verdict", to="FAILED")

    view = read(store, tmp_path)

    assert view.certificates[0].verdict is None
    assert "the file is not a certificate" in (view.certificates[0].problem or "")


def test_a_manifest_outside_the_project_is_not_read(tmp_path: Path, store: Store) -> None:
    issued(tmp_path)

    view = read(store, tmp_path / "out", file="certificate.json")

    assert view.verification is None
    assert "was not found in the project" in (view.not_verified or "")


@pytest.mark.parametrize("file", ["../secret.json", "/etc/passwd", "out/result.json", "key.pem"])
def test_an_address_cannot_name_another_file(file: str, tmp_path: Path, store: Store) -> None:
    issued(tmp_path)

    with pytest.raises(HTTPException) as caught:
        read(store, tmp_path, file=file)

    assert caught.value.status_code == 404


def test_links_are_not_followed(tmp_path: Path, store: Store) -> None:
    elsewhere, project = tmp_path / "elsewhere", tmp_path / "project"
    elsewhere.mkdir()
    project.mkdir()
    path = issued(elsewhere)
    (project / "certificate.json").symlink_to(path)

    assert read(store, project).certificates == ()


def test_without_a_project_the_page_shows_how_to_name_one(tmp_path: Path, store: Store) -> None:
    with store, ViewServer(store) as viewer:
        assert "assay view --project" in ask(viewer, "/certificates")[2]


def test_the_page_shows_a_certificate(tmp_path: Path, store: Store) -> None:
    issued(tmp_path)
    with store, ViewServer(store, ViewSettings(project=tmp_path)) as viewer:
        status, _, page = ask(viewer, f"/certificates?file={quote('out/certificate.json')}")

    assert status == 200
    assert "exact_answer" in page
    assert "assay certify verify" in page


@pytest.mark.parametrize(("runner", "state"), [(wrong, "gate"), (right, "gate missed")])
def test_a_limit_is_missed_by_values_above_it(
    runner: Any, state: str, tmp_path: Path, store: Store
) -> None:
    issued(tmp_path, profile({**RIGHT, "direction": "min"}), runner=runner)
    with store, ViewServer(store, ViewSettings(project=tmp_path)) as viewer:
        page = ask(viewer, f"/certificates?file={quote('out/certificate.json')}")[2]

    assert f'class="{state}"' in page
