"""Labels: the only write of the viewer, refused unless our own page sends it."""

import json
import urllib.request
from typing import Any

import pytest

from assay.store import Store
from recorded_samples import REPEATS, RUN
from sample_fixtures import SampleViewer


def post(
    viewer: SampleViewer, path: str, body: Any = None, **headers: str | None
) -> tuple[int, Any]:
    """Send a label as our own page does, except for the headers that are given."""
    own = viewer.server.url.rstrip("/")
    given: dict[str, str | None] = {
        "Content-Type": "application/json",
        "Origin": own,
        "X-Assay-Token": read_token(viewer),
        "Sec-Fetch-Site": "same-origin",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    data = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
    request = urllib.request.Request(own + path, data, method="POST")
    for name, value in given.items():
        if value is not None:
            request.add_header(name, value)
    status, _, text = viewer.send(request)
    return status, text.decode()


def read_token(viewer: SampleViewer) -> str:
    page = viewer.text("judged")
    return page.partition('name="assay-token" content="')[2].partition('"')[0]


def label_path(viewer: SampleViewer, sample_id: str = "checked", run: str = RUN) -> str:
    return f"/api{viewer.path(sample_id, run)}/label"


def test_a_label_is_stored_and_shown(sample_viewer: SampleViewer, sample_store: Store) -> None:
    label = {
        "verdict": "fail",
        "score": 0.25,
        "answer": "No <b>",
        "note": "see §2",
        "author": "ada",
    }

    status, body = post(sample_viewer, label_path(sample_viewer), label)

    assert status == 200
    current = json.loads(body)["current"]
    assert {name: current[name] for name in label} == label
    assert current["recorded_at"] > 1e9
    page = sample_viewer.text("checked")
    assert "by <bdi>ada</bdi>" in page
    assert "No &lt;b&gt;</textarea>" in page
    assert sample_viewer.json("checked")["human"]["current"] == current
    listed = json.loads(sample_viewer.get(f"/api/run/{RUN}/labels")[2])
    assert ("checked", "fail") in [(each["sample"], each["verdict"]) for each in listed["labels"]]
    assert listed["corrected"] >= 1
    assert b"No &lt;b&gt;" in sample_viewer.get(f"/run/{RUN}/labels")[2]
    key = next(sample_store.run(RUN).results(sample_id="checked")).key
    assert sample_store.run(RUN).find_labels([key])[key].note == "see §2"


def test_a_text_is_edited_exactly_as_it_was_saved(sample_viewer: SampleViewer) -> None:
    answer = "\n\u200fשלום</textarea>"
    path = label_path(sample_viewer, "branched")

    post(sample_viewer, path, {"answer": answer, "author": "ada"})

    assert "\n\n\u200fשלום&lt;/textarea&gt;</textarea>" in sample_viewer.text("branched")


def test_an_empty_label_withdraws_the_last_one(sample_viewer: SampleViewer) -> None:
    path = label_path(sample_viewer, "twice", REPEATS)
    post(sample_viewer, path, {"verdict": "pass", "author": "ada"})

    status, body = post(sample_viewer, path, {})

    assert (status, json.loads(body)["current"]) == (200, None)


def test_the_author_is_known_by_default(sample_viewer: SampleViewer) -> None:
    path = label_path(sample_viewer, "retried", REPEATS)

    post(sample_viewer, path, {"verdict": "pass", "author": "  "})

    human = sample_viewer.json("retried", run=REPEATS)["human"]
    assert human["current"]["author"] == human["default_author"]


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"Origin": "https://example.invalid"}, "Origin"),
        ({"Origin": None}, "Origin"),
        ({"Origin": "null"}, "Origin"),
        ({"Sec_Fetch_Site": "cross-site"}, "another site"),
        ({"Sec_Fetch_Site": "same-site"}, "another site"),
        ({"X_Assay_Token": None}, "token is missing"),
        ({"X_Assay_Token": "guess"}, "token is missing"),
        ({"Host": "rebound.example.invalid"}, "Host"),
    ],
)
def test_a_label_of_another_site_is_refused(
    headers: dict[str, str | None], reason: str, sample_viewer: SampleViewer, sample_store: Store
) -> None:
    before = len(list(sample_store.run(RUN).labels(history=True)))

    status, body = post(sample_viewer, label_path(sample_viewer), {"verdict": "pass"}, **headers)

    assert status == 403
    assert reason in body
    assert len(list(sample_store.run(RUN).labels(history=True))) == before


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        ({"verdict": "maybe"}, 400),
        ({"score": "1"}, 400),
        (b'{"score": 1e999}', 400),
        (b'{"score": NaN}', 400),
        ({"unknown": 1}, 400),
        ({"author": "x" * 201}, 400),
        ({"note": "x" * 100_001}, 400),
        ({"answer": "x" * 300_000}, 413),
    ],
)
def test_an_invalid_label_is_refused(
    body: Any, status: int, sample_viewer: SampleViewer, sample_store: Store
) -> None:
    before = len(list(sample_store.run(RUN).labels(history=True)))

    found, _ = post(sample_viewer, label_path(sample_viewer), body)

    assert found == status
    assert len(list(sample_store.run(RUN).labels(history=True))) == before


def test_only_json_is_read(sample_viewer: SampleViewer) -> None:
    status, _ = post(sample_viewer, label_path(sample_viewer), {}, Content_Type="text/plain")

    assert status == 415


def test_a_label_needs_an_existing_sample(sample_viewer: SampleViewer) -> None:
    for path in (f"/api/run/{RUN}/sample/unknown/label", "/api/run/unknown/sample/x/label"):
        status, body = post(sample_viewer, path, {"verdict": "pass"})

        assert status in (400, 404)
        assert json.loads(body)["error"]


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
def test_other_methods_are_refused(method: str, sample_viewer: SampleViewer) -> None:
    url = sample_viewer.server.url.rstrip("/") + label_path(sample_viewer)

    status, _, _ = sample_viewer.send(urllib.request.Request(url, b"{}", method=method))

    assert status == 405
