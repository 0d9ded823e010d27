"""A deployment gated on a certificate: yes once, and no after a change.

The example agent is certified with a key, and everything that the certificate is about is then
changed, one thing after another.
"""

import json
import shutil
import stat
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from commands import call_main, run_process

EXAMPLE = Path(__file__).parents[2] / "examples" / "certify"
RUN = ("certify", "run", "agent.yaml", "--runner", "converter:answer", "--judge", "judge.json")
VERIFY = ("certify", "verify", "out/certificate.dsse.json", "--manifest", "agent.yaml")
KEY = ("--key", "key.pub.pem")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__", ".assay", "out")
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True, ignore=ignored)
    return tmp_path


def replaced(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) >= 1
    path.write_text(text.replace(old, new, 1))


def test_a_deployment_is_gated_on_a_certificate(folder: Path) -> None:
    made = run_process(folder, "certify", "keygen", "-o", "key.pem")
    summary = folder / "summary.md"
    certified = run_process(
        folder,
        *(*RUN, "-o", "out", "--sign", "key.pem", "--quiet"),
        GITHUB_STEP_SUMMARY=str(summary),
    )
    good = run_process(folder, *VERIFY, *KEY, "--refetch-dataset", "--json")

    assert (made.returncode, certified.returncode) == (0, 0), certified
    assert stat.S_IMODE((folder / "key.pem").stat().st_mode) == 0o600
    assert (good.returncode, good.stderr) == (0, "")
    assert json.loads(good.stdout)["signature"] == "signed"
    assert "✅ **PASSED**" in summary.read_text("utf-8")
    assert "# Unit converter" in (folder / "out/card.md").read_text("utf-8")
    assert len(list(Xml.parse(folder / "out/junit.xml").iter("testcase"))) == 5

    replaced(folder / "golden.jsonl", "km", "kM")
    moved = call_main(folder, *VERIFY, *KEY, "--refetch-dataset")
    assert moved.returncode == 1
    assert "MISMATCH      dataset as it is now\n" in moved.stdout
    replaced(folder / "golden.jsonl", "kM", "km")

    replaced(folder / "unit_metric.py", '"""', '"""Now ')
    edited = call_main(folder, *VERIFY, *KEY)
    assert edited.returncode == 1
    assert "MISMATCH      unit_named: metric code\n" in edited.stdout

    shutil.copy(folder / "agent.yaml", folder / "old.yaml")
    replaced(folder / "agent.yaml", "threshold: 0.95", "threshold: 0.9")
    lowered = call_main(folder, *VERIFY, *KEY)
    assert lowered.returncode == 1
    assert (
        "MISMATCH      exact_answer: threshold\n"
        "                expected  0.9\n"
        "                found     0.95\n"
    ) in lowered.stdout
    compared = run_process(folder, "certify", "diff", "old.yaml", "agent.yaml", "--no-weaken")
    assert compared.returncode == 1
    assert "weakened      converter: evaluation.grading_rubric.exact_answer" in compared.stdout
    refused = call_main(folder, *RUN, "--baseline", "old.yaml", "--no-weaken")
    assert (refused.returncode, refused.stdout) == (1, "")


def test_a_no_is_certified_and_does_not_verify(folder: Path) -> None:
    done = call_main(
        folder,
        *("certify", "run", "agent.yaml", "--judge", "judge.json", "-o", "out", "--quiet"),
        GITHUB_ACTIONS="true",
    )
    refused = call_main(
        folder,
        *("certify", "verify", "out/certificate.json", "--manifest", "agent.yaml"),
        "--allow-unsigned",
    )

    assert done.returncode == 1
    assert "::error file=agent.yaml,title=converter%3A exact_answer::" in done.stderr
    assert refused.returncode == 1
    assert "MISMATCH      result\n" in refused.stdout
    suite = Xml.parse(folder / "out/junit.xml").getroot().find("testsuite")
    assert suite is not None
    assert int(suite.get("failures", "0")) >= 1


def test_a_run_with_deviations_leaves_no_certificate(folder: Path) -> None:
    done = call_main(folder, *RUN, "-o", "out", "--max-samples", "30", "--quiet")

    assert "not certifiable" in done.stdout
    assert sorted(path.name for path in (folder / "out").iterdir()) == [
        "card.md",
        "junit.xml",
        "result.json",
    ]


def test_a_runner_named_by_its_file_is_certified_with_its_code(folder: Path) -> None:
    named = ("--runner", "converter.py:answer", "--judge", "judge.json")
    done = call_main(folder, "certify", "run", "agent.yaml", *named, "-o", "out", "--quiet")
    verify = ("certify", "verify", "out/certificate.json", "--manifest", "agent.yaml")
    good = call_main(folder, *verify, "--allow-unsigned")

    assert (done.returncode, good.returncode) == (0, 0), good
    assert "runner code: converter.py sha256:" in good.stdout

    replaced(folder / "converter.py", '"""', '"""Now ')
    edited = call_main(folder, *verify, "--allow-unsigned")

    assert edited.returncode == 1
    assert "MISMATCH      runner code" in edited.stdout
