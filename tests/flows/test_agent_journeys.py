"""A new user with an agent: from an empty folder to a score, a change and a gate."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

AGENT = """\
CAPITALS = {capitals}


def answer(sample):
    return CAPITALS.get(sample["question"].split()[-1].rstrip("?"), "I do not know.")
"""
BEFORE = {"France": "Paris", "Peru": "Quito"}
AFTER = {"France": "Paris", "Peru": "Lima", "Kenya": "Nairobi", "Chile": "Santiago"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [f"What is the capital of {country}?,{city}" for country, city in AFTER.items()]
    (tmp_path / "questions.csv").write_text("\n".join(["question,answer", *rows]) + "\n")
    return tmp_path


def assay(folder: Path, *arguments: str, status: int = 0) -> str:
    variables = {name: text for name, text in os.environ.items() if not name.startswith("ASSAY_")}
    done = subprocess.run(
        [sys.executable, "-m", "assay", *arguments],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def test_an_existing_function_is_evaluated_changed_compared_and_gated(folder: Path) -> None:
    command = ["questions.csv", "--agent", "my_agent.py:answer", "--scorer", "exact_answer"]

    (folder / "my_agent.py").write_text(AGENT.format(capitals=BEFORE))
    first = json.loads(assay(folder, "eval", *command, "--json", "--quiet"))
    (folder / "my_agent.py").write_text(AGENT.format(capitals=AFTER))
    second = json.loads(assay(folder, "eval", *command, "--json", "--quiet"))

    assert first["summary"]["score"]["interval"]["mean"] == 0.25
    assert second["summary"]["score"]["interval"]["mean"] == 1.0
    assert "capital of Peru" in assay(folder, "show", first["run"])
    compared = assay(folder, "compare", first["run"], second["run"])
    assert "Quito" in compared
    assert "Lima" in compared
    assay(folder, "gate", second["run"], "--threshold", "0.9")
    assay(folder, "gate", first["run"], "--threshold", "0.9", status=1)


class _Service(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        country = body["query"]["text"].split()[-1].rstrip("?")
        data = json.dumps({"result": {"replies": [{"text": AFTER[country]}]}}).encode()
        self.send_response(200 if country != "Chile" else 503)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def service() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Service)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/ask"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_an_existing_service_is_evaluated_by_a_template_and_a_path(
    folder: Path, service: str
) -> None:
    (folder / "request.json").write_text('{"query": {"text": "{prompt}", "user": "assay"}}')
    agent = f"{service}#request=request.json&answer=result.replies[0].text"

    assay(folder, "eval", "questions.csv", "--agent", agent, "--scorer", "exact_answer", status=3)

    assert "HTTP 503" in assay(folder, "show", "latest")
    found = json.loads(assay(folder, "show", "latest", "--json"))
    assert found["summary"]["failed"] == {"agent": 1}
    assert found["summary"]["score"]["interval"]["mean"] == 1.0


def test_a_run_of_a_command_is_not_resumed_with_another_script(folder: Path) -> None:
    script = folder / "agent.sh"
    command = ["eval", "questions.csv", "--agent", "cmd:sh agent.sh", "--scorer", "exact_answer"]
    script.write_text("echo Lima\n")
    run = json.loads(assay(folder, *command, "--json", "--quiet"))["run"]

    script.write_text("echo Paris\n")
    done = subprocess.run(
        [sys.executable, "-m", "assay", *command, "--resume", run],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert done.returncode == 2
    assert "agent.identity: 'agent.sh:" in done.stderr
