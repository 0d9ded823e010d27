"""Attacks on certificates, each as somebody would try it: none of them may end with exit status 0.

The example agent is certified and signed once; each test changes one thing beside the certificate.
"""

import json
import shutil
from pathlib import Path

import pytest

from commands import call_main, run_process

EXAMPLE = Path(__file__).parents[2] / "examples" / "certify"
RUN = ("certify", "run", "agent.yaml", "--judge", "judge.json", "-o", "out", "--quiet")
VERIFY = ("certify", "verify", "out/certificate.dsse.json", "--manifest", "agent.yaml")
KEY = ("--key", "key.pub.pem")


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with a helper and a data file for its agent and its metric, certified."""
    folder = tmp_path_factory.mktemp("certified")
    ignored = shutil.ignore_patterns("__pycache__", ".assay", "out")
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True, ignore=ignored)
    (folder / "team").mkdir()
    (folder / "team/__init__.py").write_text("")
    (folder / "team/agent.py").write_text(
        "from pathlib import Path\n"
        "from .parts import solve\n"
        "STYLE = (Path(__file__).parent / 'prompts' / 'style.txt').read_text()\n"
        "def answer(sample):\n"
        "    return solve.work_out(sample)\n"
    )
    (folder / "team/prompts").mkdir()
    (folder / "team/prompts/style.txt").write_text("short\n")
    (folder / "team/parts").mkdir()
    (folder / "team/parts/solve.py").write_text(
        "import importlib\n"
        "def work_out(sample):\n"
        "    return importlib.import_module('converter').answer(sample)\n"
    )
    metric = (folder / "unit_metric.py").read_text()
    (folder / "unit_metric.py").write_text(
        metric.replace("import re\n", "import re\nfrom pathlib import Path\n\nimport units\n")
        + "\n\nassert Path('units.json').read_text() and units.NAMES\n"
    )
    (folder / "units.py").write_text("NAMES = ['m']\n")
    (folder / "units.json").write_text("{}")
    assert run_process(folder, "certify", "keygen", "-o", "key.pem").returncode == 0
    done = run_process(folder, *RUN, "--runner", "team.agent:answer", "--sign", "key.pem")
    assert done.returncode == 0, done
    return folder


@pytest.fixture
def folder(certified: Path, tmp_path: Path) -> Path:
    shutil.copytree(certified, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_nothing_changed_verifies(folder: Path) -> None:
    found = run_process(folder, *VERIFY, *KEY, "--refetch-dataset")

    assert (found.returncode, found.stderr) == (0, ""), found
    assert "VERIFIED, and signed" in found.stdout


def test_another_agent_under_the_name_of_the_certified_one_is_named(folder: Path) -> None:
    (folder / "team/agent.py").write_text("def answer(sample): return 'ha'\n")

    found = call_main(folder, *VERIFY, *KEY)

    assert found.returncode == 1
    assert "MISMATCH      runner code\n                expected  team/agent.py sha" in found.stdout
    assert "NOT VERIFIED: 1 of" in found.stdout


def test_a_metric_that_patches_the_verifier_is_not_imported(folder: Path) -> None:
    (folder / "unit_metric.py").write_text(
        "import pathlib\n"
        "pathlib.Path('was_here').touch()\n"
        "import assay.certify.certificate_checks as checks\n"
        "import assay.certify.verification as verifying\n"
        "verifying.check_certificate = lambda *_, **__: ()\n"
        "def names_unit(sample): return True\n"
    )

    found = call_main(folder, *VERIFY, *KEY)

    assert found.returncode == 1
    assert "MISMATCH      unit_named: metric code\n" in found.stdout
    assert not (folder / "was_here").exists()


def test_a_file_beside_the_manifest_takes_the_place_of_no_module(folder: Path) -> None:
    for shadow in ("json.py", "hashlib.py", "securesystemslib.py", "yaml.py"):
        (folder / shadow).write_text("import os\nos._exit(0)\n")

    found = run_process(folder, *VERIFY, *KEY)

    assert "VERIFIED, and signed" in found.stdout


ENDS = {
    "os._exit(0)": "ended with exit status 0",
    "os.kill(os.getpid(), 9)": "ended by signal 9",
    "os.execv('/bin/true', ['true'])": "ended with exit status 0",
}


@pytest.mark.parametrize(("end", "told"), ENDS.items(), ids=ENDS)
def test_an_agent_that_ends_the_process_is_no_success(folder: Path, end: str, told: str) -> None:
    (folder / "ender.py").write_text(f"import os\ndef answer(sample): {end}\n")

    found = run_process(folder, *RUN, "--runner", "ender:answer")

    assert found.returncode == 3
    assert told in found.stderr
    # No report of the earlier run is left to be taken for one of this either.
    assert {path.suffix for path in (folder / "out").iterdir()} == {".previous"}
    assert (folder / "out/certificate.dsse.json.previous").exists()


def test_an_exit_in_a_plan_is_no_success_either(folder: Path) -> None:
    (folder / "ender.py").write_text("import os\nos._exit(0)\n")

    plan = ("certify", "plan", "agent.yaml", "--judge", "judge.json")
    for words in (plan, ("--", *plan)):
        assert run_process(folder, *words, "--runner", "ender:answer").returncode == 3


def test_an_agent_that_exits_has_failed(folder: Path) -> None:
    (folder / "ender.py").write_text("import sys\ndef answer(sample): sys.exit(0)\n")

    found = call_main(folder, *RUN, "--runner", "ender:answer")

    assert found.returncode == 1
    assert "SystemExit" in found.stdout


@pytest.mark.parametrize("file", ["agent.yaml", "golden.jsonl"])
def test_a_run_that_was_refused_leaves_no_certificate(folder: Path, file: str) -> None:
    before = (folder / "out/certificate.dsse.json").read_bytes()
    (folder / file).write_text("{")

    found = call_main(folder, *RUN, "--runner", "team.agent:answer")

    assert found.returncode == 2
    assert not (folder / "out/certificate.dsse.json").exists()
    assert (folder / "out/certificate.dsse.json.previous").read_bytes() == before
    assert "out/certificate.dsse.json.previous" in found.stderr


def test_a_judge_that_is_away_leaves_no_certificate(folder: Path) -> None:
    judge = {"provider": "vllm", "model": "fixed", "api_base": "http://127.0.0.1:9/v1"}
    (folder / "judge.json").write_text(json.dumps(judge))

    found = call_main(folder, *RUN, "--runner", "team.agent:answer")

    assert found.returncode == 3
    assert not (folder / "out/certificate.json").exists()
