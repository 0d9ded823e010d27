"""Every kind of bad input to `assay certify run`: its exit status, and what is said of it.

The agent is never called: each mistake is found before that.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from assay.cli import main
from certifying import golden

MANIFEST = """\
definitions:
  helper:
    type: agent
    id: helper
    name: Helper
    role: One who helps.
    goal: Say what is asked for.
    model: mock:echo
    evaluation:
      expected_latency_ms: 2000
      golden_dataset_uri: golden.jsonl
      evaluator_model: mock:fixed
      grading_rubric:
        - name: exact_answer
          description: It is right.
          threshold: 0.9
"""
AGENT = """\
import pathlib

def answer(sample):
    pathlib.Path("called").touch()
    return "x"
"""


@dataclass(frozen=True)
class Bad:
    """One edit of the manifest, and the words that must be said of it."""

    old: str
    new: str
    told: tuple[str, ...]
    status: int = 2


def said(old: str, new: str, *told: str, status: int = 2) -> Bad:
    return Bad(old, new, told, status)


def uri(new: str, *told: str, status: int = 2) -> Bad:
    return Bad("golden_dataset_uri: golden.jsonl", f"golden_dataset_uri: {new}", told, status)


LAST = "threshold: 0.9\n"
MORE = "threshold: 0.9\n        - {name: %s, description: It is so., threshold: %s}\n"
BOMB = "\n".join(
    ["x-bomb:", "  a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    + [f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
)
MANIFEST_MISTAKES = {
    "an unknown field": said(
        "goal:", "colour: red\n    goal:", "agent.yaml:7", "colour: unknown field"
    ),
    "a misspelt field": said("threshold: 0.9", "treshold: 0.9", "did you mean 'threshold'?"),
    "a misspelt evaluation": said("evaluation:", "evalution:", "did you mean 'evaluation'?"),
    "NaN": said("0.9", ".nan", "agent.yaml:16", "threshold"),
    "infinity": said("0.9", ".inf", "agent.yaml:16", "threshold"),
    "a number in quotes": said("0.9", "'0.9'", "remove the quotes"),
    "a negative latency": said("2000", "-5", "agent.yaml:10", "expected_latency_ms"),
    "no latency at all": said("2000", "0", "agent.yaml:10", "expected_latency_ms"),
    "a key given twice": said("0.9", "0.9\n          threshold: 0.1", "agent.yaml:17"),
    "an alias bomb": said("definitions:", f"{BOMB}\ndefinitions:", "20,000"),
    "a circle of references": said(
        MANIFEST,
        "definitions:\n  helper: {$ref: agent.yaml#/definitions/helper}\n",
        "is circular",
    ),
    "a reference out of the folder": said(
        MANIFEST, "definitions:\n  helper: {$ref: ../other.yaml}\n", "folder"
    ),
    "a reference through a link": said(
        MANIFEST, "definitions:\n  helper: {$ref: linked.yaml}\n", "folder"
    ),
}
PLAN_MISTAKES = {
    "a threshold in percent": said("0.9", "90", "range, 0 to 1", "did you mean 0.9?"),
    "a threshold below the range": said("0.9", "-0.5", "range, 0 to 1"),
    "a threshold everybody reaches": said("0.9", "0", "every agent reaches the threshold 0"),
    "a direction left open": said(
        LAST, MORE % ("hallucination_rate", 0.02), "`direction: min` or `direction: max`"
    ),
    "two criteria of one name": said(
        LAST, MORE % ("exact_answer", 0.5), "two criteria are named 'exact_answer'"
    ),
    "nothing to certify": said(
        MANIFEST[MANIFEST.index("      expected") :],
        "      golden_dataset_uri: golden.jsonl\n      grading_rubric: []\n",
        "neither criteria nor a latency limit",
    ),
    "no evaluation": said(
        MANIFEST[MANIFEST.index("    evaluation") :],
        "",
        "no agent of the manifest has an `evaluation`",
    ),
    "no judge": said(
        "evaluator_model: mock:fixed\n      grading_rubric:\n        - name: exact_answer",
        "grading_rubric:\n        - name: polite",
        "no metric is named polite",
        "`evaluator_model`",
    ),
    "an unknown judge": said(
        "evaluator_model: mock:fixed\n      grading_rubric:\n        - name: exact_answer",
        "evaluator_model: wise-one\n      grading_rubric:\n        - name: polite",
        "'wise-one'",
        "--judge",
    ),
    "a metric that is not there": said(
        "0.9",
        "0.9\n          metric: nowhere:score",
        "cannot be imported",
        "in the current folder or the manifest's",
    ),
    "too few samples for a proof": said(
        "grading_rubric", "gate: proven\n      grading_rubric", "at least 29 samples", "has 6"
    ),
}
DATASET_MISTAKES = {
    "a file that is not there": uri("none.jsonl", "none.jsonl: the file does not exist"),
    "a file outside": uri(
        "../outside.jsonl", "out of the folder of the manifest", "--allow-outside"
    ),
    "a link to the outside": uri("linked.jsonl", "out of the folder of the manifest"),
    "an unknown scheme": uri("ftp://host/golden.jsonl", "'ftp'", "supported are"),
    "a chain": uri("'simplecache::file:///etc/hostname'", "chain"),
    "a private address": uri("http://127.0.0.1:9/golden.jsonl", "private", "--allow-private"),
    "bad JSON at a line": uri("broken.jsonl", "broken.jsonl:2"),
    "an id given twice": uri("twice.jsonl", "twice.jsonl:2: the id 'one'", "a unique `id`"),
    "no rows": uri("empty.jsonl", "the dataset contains no samples"),
    "another digest": said(
        "golden_dataset_uri: golden.jsonl",
        f"golden_dataset_uri: golden.jsonl\n      golden_dataset_sha256: '{'0' * 64}'",
        "the dataset is not the pinned one",
        "before you update the pin",
    ),
}
ALL = {**MANIFEST_MISTAKES, **PLAN_MISTAKES, **DATASET_MISTAKES}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.chdir(inside)
    golden(inside)
    row = '{"id": "one", "question": "1+1?", "answer": "2"}\n'
    for name, text in {
        "agent.yaml": MANIFEST,
        "bad_input_agent.py": AGENT,
        "broken.jsonl": row + '{"id": "two", \n',
        "twice.jsonl": row + row,
        "nameless.jsonl": '{"question": "1+1?", "answer": "2"}\n',
        "empty.jsonl": "",
        "../outside.jsonl": row,
        "../other.yaml": "type: agent\n",
    }.items():
        (inside / name).write_text(text)
    (inside / "linked.jsonl").symlink_to(tmp_path / "outside.jsonl")
    (inside / "linked.yaml").symlink_to(tmp_path / "other.yaml")
    return inside


def edited(folder: Path, bad: Bad) -> None:
    assert MANIFEST.count(bad.old) == 1
    (folder / "agent.yaml").write_text(MANIFEST.replace(bad.old, bad.new))


def refused(bad: Bad, capsys: pytest.CaptureFixture[str], *options: str) -> None:
    """Run it, and check that it is refused with the right words and before any call."""
    status = main(
        ["certify", "run", "agent.yaml", "--runner", "bad_input_agent:answer", *options, "--quiet"]
    )

    captured = capsys.readouterr()
    assert (status, captured.out) == (bad.status, ""), captured.err
    assert [words for words in bad.told if words not in captured.err] == [], captured.err
    assert "Traceback" not in captured.err
    assert not Path("called").exists()
    assert not Path("out").exists()


@pytest.mark.parametrize("bad", ALL.values(), ids=ALL)
def test_bad_input_is_refused_before_the_agent_is_called(
    folder: Path, bad: Bad, capsys: pytest.CaptureFixture[str]
) -> None:
    edited(folder, bad)

    refused(bad, capsys, "-o", "out")


def test_the_manifest_itself_is_not_at_fault(folder: Path) -> None:
    """Without an edit the agent is called, and fails for what it says."""
    options = ["--runner", "bad_input_agent:answer", "--quiet"]

    assert main(["certify", "run", "agent.yaml", *options]) == 1
    assert Path("called").exists()


@pytest.fixture
def address() -> Iterator[str]:
    """A server that has nothing, and is out of order at one path."""

    class Nothing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(503 if "busy" in self.path else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Nothing) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("path", "told", "status"),
    [
        ("none.jsonl", "the file does not exist (HTTP 404)", 2),
        ("busy.jsonl", "answered HTTP 503", 3),
    ],
)
def test_a_page_that_is_not_there_is_wrong_and_a_busy_server_cannot_be_told(
    folder: Path,
    address: str,
    path: str,
    told: str,
    status: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad = uri(f"{address}/{path}", told, status=status)
    edited(folder, bad)

    refused(bad, capsys, "--allow-private")


def test_a_server_that_is_down_cannot_be_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = uri("http://127.0.0.1:9/golden.jsonl", "the file cannot be fetched", status=3)
    edited(folder, bad)

    refused(bad, capsys, "--allow-private")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An S3 server with one empty bucket."""
    moto = pytest.importorskip("moto.server")
    botocore = pytest.importorskip("botocore.session")
    pytest.importorskip("s3fs")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "made-up",
        "AWS_SECRET_ACCESS_KEY": "made-up-secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    client = botocore.Session().create_client("s3")
    client.create_bucket(Bucket="bad-input")
    client.close()
    yield "bad-input"
    server.stop()


def test_a_missing_bucket_or_key_is_named(
    folder: Path, bucket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for place in (f"s3://{bucket}/none.jsonl", "s3://no-such-bucket/golden.jsonl"):
        bad = uri(place, f"{place}: the object or its bucket does not exist")
        edited(folder, bad)

        refused(bad, capsys)


def test_a_store_whose_package_is_missing_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("assay.datasets.golden.object_store.find_spec", lambda name: None)
    bad = uri(
        "gs://bucket/golden.jsonl",
        "fetching from gs://bucket/golden.jsonl",
        "pip install 'assay-eval[gcs]'",
    )
    edited(folder, bad)

    refused(bad, capsys)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--runner", "nowhere:answer"), "cannot be imported"),
        (("--runner", "what is this"), "does not name an agent"),
        (
            ("--runner", "cmd:no-such-program-here"),
            "the program 'no-such-program-here' was not found",
        ),
        (("--agent", "nobody"), "agents of the manifest: helper"),
        (("--judge", "none.json"), "none.json: the file cannot be read"),
        (("--tools", "bad_input_agent"), "--tools has no effect: the agent has no tools"),
        (("--sign", "none.pem", "-o", "out"), "none.pem: the key file cannot be read"),
        (("--no-weaken",), "need --baseline"),
        (("--valid-days", "100000", "-o", "out"), "is not between 1 and 3650"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_wrong_request_is_refused_like_a_wrong_manifest(
    folder: Path, options: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certify", "run", "agent.yaml", *options, "--quiet"]) == 2

    captured = capsys.readouterr()
    assert captured.out == ""
    assert told in captured.err
    assert not Path("out").exists()


def test_in_a_process_of_its_own_a_plan_says_no_in_the_same_words(folder: Path) -> None:
    edited(folder, MANIFEST_MISTAKES["a misspelt field"])

    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "assay", "certify", "plan", "agent.yaml", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COLUMNS": "80"},
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert (
        "agent.yaml:16:11: definitions.helper.evaluation.grading_rubric[0].treshold" in done.stderr
    )
    assert "did you mean 'threshold'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_a_module_prints_is_no_part_of_a_plan(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "loud_agent.py").write_text("print('loud')\ndef answer(sample): return 'x'\n")

    assert main(["certify", "plan", "agent.yaml", "--runner", "loud_agent:answer", "--json"]) == 0

    captured = capsys.readouterr()
    assert json.loads(captured.out)["plans"][0]["runner"] == "loud_agent:answer"
    assert captured.err == "loud\n"
