"""Verification of code: a certificate holds for the files that were run, and for no others."""

import asyncio
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.certify import (
    CertifySettings,
    Verification,
    VerifyPolicy,
    certify,
    plan_certifications,
    verify_certificate,
    write_reports,
)
from assay.certify.report_files import IssueOptions
from assay.certify.signatures import generate_key, read_signing_key, read_verifying_key
from assay.types import Endpoint
from certificates import change, issued
from certifying import RIGHT, agent, golden, profile

OWN = {**RIGHT, "name": "own", "metric": "own_metric_here:score"}
CHECKED = {**RIGHT, "name": "checked", "metric": "check:rules.yaml"}
FILES = {
    "agent_here.py": "import helper_here\nanswer = helper_here.answer\n",
    "helper_here.py": (
        "import pathlib\n"
        "WORDS = pathlib.Path('prompt.txt').read_text()\n"
        "def answer(sample):\n"
        "    return sample.messages[-1].text.removeprefix('Say ')\n"
    ),
    "prompt.txt": "be brief\n",
    "own_metric_here.py": "from scale_here import ONE\ndef score(sample):\n    return ONE\n",
    "scale_here.py": "ONE = 1\n",
    "rules.yaml": "checks:\n  - {name: fine, python: rule_here:fine}\n",
    "rule_here.py": "def fine(sample):\n    return True\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    golden(tmp_path, rows=3)
    yield tmp_path
    for name in [name for name in sys.modules if name.endswith("_here")]:
        del sys.modules[name]


def verified(folder: Path, **policy: Any) -> Verification:
    given = {"keys": (read_verifying_key(folder / "key.pub.pem"),), **policy}
    return verify_certificate(
        folder / "out/certificate.dsse.json", folder / "agent.yaml", policy=VerifyPolicy(**given)
    )


def named(found: Verification) -> dict[str, str]:
    return {each.check: each.expected.partition(" ")[0] for each in found.mismatches}


@pytest.fixture
def certified(folder: Path) -> Path:
    issued(folder, profile(RIGHT, OWN, CHECKED), runner="agent_here:answer")
    return folder


@pytest.mark.parametrize(
    ("file", "check"),
    {
        "agent_here.py": "runner code",
        "helper_here.py": "runner code",
        "prompt.txt": "runner code",
        "own_metric_here.py": "own: metric code",
        "scale_here.py": "own: metric code",
        "rules.yaml": "checked: check file",
        "rule_here.py": "checked: check file",
    }.items(),
)
def test_a_changed_file_is_named(certified: Path, file: str, check: str) -> None:
    assert verified(certified).verified
    with (certified / file).open("a") as changed:
        changed.write("# another\n")

    assert named(verified(certified)) == {check: file}


@pytest.mark.parametrize("first", [None, "", "elsewhere"])
@pytest.mark.parametrize("inside", [".", "manifests/deep"])
def test_it_is_verified_from_any_folder_and_in_any_copy(
    folder: Path,
    inside: str,
    first: str | None,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The code lies in the folder in which it is run, and its prompt too; the manifest below."""
    (folder / inside).mkdir(parents=True, exist_ok=True)
    golden(folder / inside, rows=3)
    path = sys.path.copy()
    issued(folder / inside, profile(RIGHT), runner="agent_here:answer")
    copy = tmp_path_factory.mktemp("another place") / "copy"
    shutil.copytree(folder, copy)
    # A file in the folder of the verifier is not the agent's.
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for name in ("agent_here.py", "prompt.txt"):
        (elsewhere / name).write_text("# of something else\n")
    # As in another process: an interactive one searches its current folder, a script its own.
    sys.path[:] = path if first is None else [first and str(elsewhere), *path]

    for place in (folder, elsewhere, copy / inside):
        monkeypatch.chdir(place)
        assert verified(folder / inside).verified
        assert verified(copy / inside).verified

    (copy / "prompt.txt").write_text("ramble\n")
    assert named(verified(copy / inside)) == {"runner code": "prompt.txt"}


@pytest.mark.parametrize("first", ["", "{folder}"])
@pytest.mark.parametrize(
    ("file", "check"),
    [
        ("agent_here.py", "runner code"),
        ("helper_here.py", "runner code"),
        ("own_metric_here.py", "own: metric code"),
        ("scale_here.py", "own: metric code"),
        ("rule_here.py", "checked: check file"),
    ],
)
def test_the_certified_files_beside_the_verifier_do_not_hide_changed_ones(
    certified: Path,
    first: str,
    file: str,
    check: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The verifier runs in the original folder, or is a script there."""
    sys.path.insert(0, first.format(folder=certified))
    copy = tmp_path_factory.mktemp("another place") / "copy"
    shutil.copytree(certified, copy)
    (copy / file).write_text((copy / file).read_text() + "# another\n")

    assert named(verified(copy)) == {check: file}


def test_no_code_is_imported(certified: Path) -> None:
    for name in FILES:
        if name.endswith(".py"):
            (certified / name).write_text("raise AssertionError\n")
            sys.modules.pop(Path(name).stem, None)

    assert not verified(certified).verified


def test_a_file_that_is_gone_is_named(certified: Path) -> None:
    (certified / "prompt.txt").unlink()
    (certified / "own_metric_here.py").unlink()

    found = verified(certified)

    assert {each.check for each in found.mismatches} == {"runner code", "own: metric code"}
    assert "without prompt.txt" in {each.expected for each in found.mismatches}


def test_a_file_that_the_code_names_and_that_is_there_now_is_named(folder: Path) -> None:
    (folder / "agent_here.py").write_text(
        "import os\n"
        "def answer(sample):\n"
        "    if os.path.exists('override.txt'):\n"
        "        return 'ha'\n"
        "    return sample.messages[-1].text.removeprefix('Say ')\n"
    )
    issued(folder, runner="agent_here:answer")
    (folder / "override.txt").touch()

    (finding,) = verified(folder).mismatches

    assert (finding.check, finding.found) == ("runner code", "without override.txt")


def test_a_file_that_the_agent_writes_is_said_not_to_be_pinned(folder: Path) -> None:
    (folder / "agent_here.py").write_text(
        "import pathlib\n"
        "def answer(sample):\n"
        "    pathlib.Path('log_here.txt').write_text(sample.id)\n"
        "    return sample.messages[-1].text.removeprefix('Say ')\n"
    )
    issued(folder, runner="agent_here:answer")

    found = verified(folder)

    assert found.verified
    (finding,) = [each for each in found.findings if each.check == "files not pinned"]
    assert (finding.status, finding.found) == ("unchecked", "log_here.txt")


def test_code_that_changes_while_it_runs_is_not_certified(folder: Path) -> None:
    (folder / "agent_here.py").write_text(
        "import pathlib\n"
        "def answer(sample):\n"
        "    pathlib.Path(__file__).write_text('# more')\n"
        "    return sample.messages[-1].text.removeprefix('Say ')\n"
    )
    issued(folder, runner="agent_here:answer", sign=False)

    result = json.loads((folder / "out/result.json").read_text())

    assert result["deviations"] == ["agent_here.py changed during the run"]
    assert not (folder / "out/certificate.json").exists()


def test_a_metric_that_claims_to_be_another_is_digested_where_it_is(folder: Path) -> None:
    (folder / "honest_here.py").write_text("def score(sample):\n    return True\n")
    (folder / "own_metric_here.py").write_text(
        "import functools\n"
        "import honest_here\n"
        "@functools.wraps(honest_here.score)\n"
        "def score(sample):\n"
        "    return True\n"
    )
    issued(folder, profile(OWN), runner="agent_here:answer")
    text = (folder / "own_metric_here.py").read_text()
    (folder / "own_metric_here.py").write_text(text.replace("True", "1 - 0"))

    assert named(verified(folder)) == {"own: metric code": "own_metric_here.py"}


def test_the_files_of_a_command_are_compared(folder: Path) -> None:
    (folder / "program.py").write_text("print(input().removeprefix('Say '))\n")
    issued(folder, runner=f"cmd:{sys.executable} program.py")
    assert verified(folder).verified
    (folder / "program.py").write_text("print('ha')\n")

    assert named(verified(folder)) == {"runner code": "program.py"}


def test_a_command_without_files_of_its_own_is_said_not_to_be_checked(folder: Path) -> None:
    issued(folder, runner="cmd:sed s/Say.//")

    found = verified(folder)

    assert found.verified
    (finding,) = [each for each in found.findings if each.check == "runner code"]
    assert finding.status == "unchecked"


def test_a_tool_that_the_agent_names_by_its_id_is_compared(folder: Path) -> None:
    path = folder / "agent.yaml"
    golden(folder, rows=3)
    issued(folder, runner="agent_here:answer", sign=False)
    helper = agent(profile(), tools=["search"])
    tool = {"type": "tool", "id": "search", "uri": "mcp://a", "uses": ["index"]}
    index = {"type": "skill", "id": "index", "text": "old"}
    definitions = {"helper": helper, "search": tool, "index": index}
    path.write_text(json.dumps({"definitions": definitions}))
    certify_again(folder)
    assert verified(folder).verified

    change(path, "definitions", "search", "uri", to="mcp://b")
    change(path, "definitions", "index", "text", to="new")

    assert set(named(verified(folder))) == {"definition search", "definition index"}


def certify_again(folder: Path, **settings_: Any) -> None:
    """Certify the manifest as it is."""
    settings = CertifySettings(**{"runner": "agent_here:answer", **settings_})
    (plan,) = plan_certifications(folder / "agent.yaml", settings, folder=folder / "fetched")
    result = asyncio.run(certify(plan, store=folder / "store.db"))
    key = read_signing_key(generate_key(folder / "key.pem").private)
    write_reports(result, folder / "out", options=IssueOptions(key=key))


def test_the_settings_of_an_endpoint_can_be_demanded(folder: Path) -> None:
    same = Endpoint(provider="mock", model="echo", temperature=0.0)
    other = Endpoint(provider="mock", model="echo", temperature=2.0)
    issued(folder, profile({**RIGHT, "strict": False}), runner=same)

    assert verified(folder).verified
    assert verified(folder, endpoint=same).verified
    assert list(named(verified(folder, endpoint=other))) == ["agent endpoint"]


def test_the_code_of_tools_is_compared(folder: Path) -> None:
    (folder / "tools_here.py").write_text(
        "import helper_here\ndef lookup() -> str:\n    return ''\n"
    )
    parameters = {"type": "object", "properties": {}}
    tool = {
        "type": "inline",
        "name": "lookup",
        "description": "Look.",
        "parameters": parameters,
    }
    path = folder / "agent.yaml"
    definition = agent(profile({**RIGHT, "strict": False}), tools=[tool])
    path.write_text(json.dumps({"definitions": {"helper": definition}}))
    certify_again(folder, runner=None, tools="tools_here")
    assert verified(folder).verified

    (folder / "helper_here.py").write_text("# another\n")

    assert named(verified(folder)) == {"runner code": "helper_here.py"}
