"""Manifests: loaded from a fragment, a file and plain values, and written back the same."""

import contextlib
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from assay.errors import ConfigError, ManifestError
from assay.types.manifest import AgentDefinition, Manifest
from manifest_files import GOOD, refusal, written

FULL = (
    """\
apiVersion: coreason.ai/v2
kind: Agent
metadata:
  name: Bank
  version: 1.2.0
  created: 2026-01-01
  requires_auth: no
  tested_models: [gpt-4]
  team: {lead: Ada}
x-design: {color: red}
interface: {inputs: {q: {type: string}}}
state: {}
policy: {max_steps: 5}
workflow:
  start: first
  steps:
    first: {type: agent, id: first, agent: teller, next: second}
    second: {type: switch, cases: {"yes": first}}
"""
    + GOOD
)


def test_a_fragment_with_definitions_alone_is_a_manifest(tmp_path: Path) -> None:
    manifest = Manifest.load(written(tmp_path))

    teller = manifest.definitions["teller"]
    assert isinstance(teller, AgentDefinition)
    assert teller.evaluation is not None
    assert teller.evaluation.expected_latency_ms == 2000
    assert [each.strict for each in teller.evaluation.grading_rubric] == [True, False]
    assert manifest.agents == {"teller": teller}
    assert (manifest.kind, manifest.metadata, manifest.workflow) == (None, None, None)


def test_a_full_manifest_is_read_whole(tmp_path: Path) -> None:
    manifest = Manifest.load(written(tmp_path, FULL))

    assert manifest.kind == "Agent"
    assert manifest.metadata is not None
    assert (manifest.metadata.created, manifest.metadata.requires_auth) == ("2026-01-01", False)
    assert manifest.workflow is not None
    assert manifest.workflow.steps["second"].type == "switch"
    assert manifest.extensions == {"x-design": {"color": "red"}}


@pytest.mark.parametrize("text", [GOOD, FULL])
def test_what_is_written_is_read_back_equal(text: str, tmp_path: Path) -> None:
    manifest = Manifest.load(written(tmp_path, text))

    again = Manifest.load(written(tmp_path, manifest.dump(), "again/agent.yaml"))

    assert again == manifest
    assert hash(again) == hash(manifest)
    assert again.dump() == manifest.dump()
    assert pickle.loads(pickle.dumps(manifest)) == manifest
    assert Manifest.load(manifest.model_dump(by_alias=True)) == manifest


def test_where_it_was_read_from_is_kept_beside_the_manifest(tmp_path: Path) -> None:
    path = written(tmp_path)
    manifest = Manifest.load(str(path))

    assert manifest.path == path
    assert manifest.root == tmp_path
    assert [(each.path, len(each.sha256)) for each in manifest.files] == [(path, 64)]
    assert str(tmp_path) not in manifest.dump()
    from_memory = Manifest.load(manifest.model_dump(by_alias=True))
    assert (from_memory.path, from_memory.root, from_memory.files) == (None, None, ())
    assert from_memory == manifest
    assert manifest != GOOD


def test_json_is_read_too(tmp_path: Path) -> None:
    manifest = Manifest.load(written(tmp_path))
    path = written(tmp_path, manifest.model_dump_json(by_alias=True), "agent.json")

    assert Manifest.load(path) == manifest


def test_nothing_of_a_manifest_can_be_changed(tmp_path: Path) -> None:
    manifest = Manifest.load(written(tmp_path, FULL))

    with pytest.raises(TypeError):
        manifest.definitions["new"] = manifest.definitions["teller"]  # type: ignore[index]  # tested
    with pytest.raises(ValidationError, match="frozen"):
        manifest.definitions = {}  # type: ignore[misc]  # what is tested
    with pytest.raises(TypeError):
        manifest.policy["max_steps"] = 6  # type: ignore[index]  # what is tested
    assert len({manifest, Manifest.load(written(tmp_path, FULL))}) == 1


BROKEN = {
    "a misspelt field": (
        GOOD.replace("goal:", "gaol:"),
        "agent.yaml:7:5: definitions.teller.gaol: unknown field\n    hint: did you mean 'goal'?",
    ),
    "a missing field": (
        GOOD.replace("    role: Bank teller\n", ""),
        "agent.yaml:2:3: definitions.teller.role: the field is missing",
    ),
    "a misspelt field of the profile": (
        GOOD.replace("evaluator_model", "evaluater_model"),
        "agent.yaml:12:7: definitions.teller.evaluation.evaluater_model: unknown field\n"
        "  hint: did you mean 'evaluator_model'?",
    ),
    "a misspelt field of a criterion": (
        GOOD.replace("threshold: 0.8", "treshold: 0.8"),
        "agent.yaml:19:11: definitions.teller.evaluation.grading_rubric[1].treshold: unknown "
        "field\n    hint: did you mean 'threshold'?",
    ),
    "a field that is like no other": (
        GOOD.replace("evaluator_model", "qqq"),
        "known names: 'expected_latency_ms', 'golden_dataset_uri', 'evaluator_model'",
    ),
    "a misspelt top": (
        GOOD.replace("definitions:", "definitons:"),
        "agent.yaml:1:1: definitons: unknown field\n    hint: did you mean 'definitions'?",
    ),
    "NaN": (
        GOOD.replace("0.8", ".nan"),
        "agent.yaml:19:22: definitions.teller.evaluation.grading_rubric[1].threshold: "
        "'.nan' is not a finite number",
    ),
    "infinity": (GOOD.replace("0.8", "-.inf"), "threshold: '-.inf' is not a finite number"),
    "a number too large": (GOOD.replace("0.8", "1e999"), "threshold: 1e999 is too large"),
    "a threshold in quotes": (
        GOOD.replace("0.8", "'0.8'"),
        "agent.yaml:19:11: definitions.teller.evaluation.grading_rubric[1].threshold: "
        "the value is '0.8', not a number\n  hint: remove the quotes",
    ),
    "a time for a threshold": (
        GOOD.replace("0.8", "1:30"),
        "threshold: '1:30' is YAML's spelling of an int",
    ),
    "an octal latency": (
        GOOD.replace("2000", "017"),
        "agent.yaml:10:28: definitions.teller.evaluation.expected_latency_ms: '017' is YAML's "
        "spelling of an int",
    ),
    "a negative latency": (
        GOOD.replace("2000", "-5"),
        "agent.yaml:10:7: definitions.teller.evaluation.expected_latency_ms: the value is -5: ",
    ),
    "a latency that is true": (
        GOOD.replace("2000", "true"),
        "agent.yaml:10:7: definitions.teller.evaluation.expected_latency_ms: "
        "the value is true, not a whole",
    ),
    "an empty address": (
        GOOD.replace("golden.jsonl", "''"),
        "agent.yaml:11:7: definitions.teller.evaluation.golden_dataset_uri: the text is empty",
    ),
    "an empty name": (
        GOOD.replace("politeness", '""'),
        "agent.yaml:17:11: definitions.teller.evaluation.grading_rubric[1].name: the text is empty",
    ),
    "strict in quotes": (
        GOOD.replace("strict: false", "strict: 'no'"),
        "agent.yaml:20:11: definitions.teller.evaluation.grading_rubric[1].strict: "
        "the value is 'no', neither true nor false\n  hint: remove the quotes",
    ),
    "an unknown direction": (
        GOOD.replace("strict: false", "direction: low"),
        "agent.yaml:20:11: definitions.teller.evaluation.grading_rubric[1].direction: 'low' is not "
        "'max' or 'min'",
    ),
    "an unknown kind": (
        GOOD.replace("type: agent", "type: agnet"),
        "agent.yaml:2:3: definitions.teller: `type` is 'agnet', which is not a known type\n"
        "  hint: did you mean 'agent'?",
    ),
    "no kind": (
        GOOD.replace("    type: agent\n", ""),
        "agent.yaml:2:3: definitions.teller: `type` is missing; use one of agent, tool",
    ),
    "definitions as a list": (
        "definitions: [1]\n",
        "agent.yaml:1:1: definitions: the value is a list, not a mapping",
    ),
    "a definition that is text": (
        "definitions:\n  a: text\n",
        "agent.yaml:2:3: definitions.a: the value is not a mapping with a `type`",
    ),
    "a rubric that is null": (
        "definitions:\n  a: {type: agent, id: a, name: a, role: r, goal: g,\n"
        "    evaluation: {grading_rubric: null}}\n",
        "agent.yaml:3:18: definitions.a.evaluation.grading_rubric: the value is null, not a list",
    ),
    "the wrong version": (
        "apiVersion: v1\n" + GOOD,
        "agent.yaml:1:1: apiVersion: 'v1' is not 'coreason.ai/v2'",
    ),
    "a duplicate key": (
        GOOD + "          strict: true\n",
        "agent.yaml:21:11: definitions.teller.evaluation.grading_rubric[1]: the key 'strict' is "
        "given twice; first in line 20",
    ),
    "broken YAML": (GOOD + "  bad: [\n", "agent.yaml:22:1: the file is not YAML"),
    "a list": (
        "- a\n",
        "agent.yaml:1:1: the file is a list, not a mapping\n"
        "  hint: the required fields are definitions",
    ),
    "nothing": ("", "agent.yaml: the file is empty"),
    "an alias bomb": (
        "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)),
        "agent.yaml:5:15: a4[1]: the file contains more than 20,000 values",
    ),
    "depth": ("a: " + "[" * 3000 + "]" * 3000, "is nested more than 40 deep"),
    "a number for a name": (
        GOOD.replace("name: Teller", "name: 5"),
        "agent.yaml:5:5: definitions.teller.name: the value is 5, not text\n"
        "  hint: quote the value",
    ),
}


@pytest.mark.parametrize(("text", "said"), BROKEN.values(), ids=BROKEN)
def test_what_is_wrong_is_told_with_file_line_and_path(
    text: str, said: str, tmp_path: Path
) -> None:
    assert said in refusal(tmp_path, text)


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("2000", "-5").replace("0.9", "'0.9'").replace("goal:", "gaol:")

    said = refusal(tmp_path, text)

    assert said.startswith("agent.yaml: the file has 4 problems\n")
    assert re.findall(r"agent\.yaml:\d+", said) == [f"agent.yaml:{n}" for n in (2, 7, 10, 16)]


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"definitions: {}\n# \xe9\n")
    (tmp_path / "huge.yaml").write_bytes(b"#" * (1024 * 1024 + 1))

    for source, said in (
        (tmp_path / "none.yaml", "cannot be read: No such file"),
        (tmp_path, "cannot be read: Is a directory"),
        (tmp_path / "latin.yaml", r"latin\.yaml:2: the file is not UTF-8: byte 0xe9"),
        (tmp_path / "huge.yaml", "is larger than 1,048,576 bytes"),
        ("a\x00b", "cannot be read: embedded null"),
        ("", "'' is neither a path nor a mapping"),
        (5, "5 is neither a path nor a mapping"),
        ({}, "manifest: definitions: the field is missing"),
        ({"definitions": {"a": 5}}, "manifest: definitions.a: the value is not a mapping"),
    ):
        with pytest.raises(ManifestError, match=said):
            Manifest.load(source)  # type: ignore[arg-type]  # 5 is none of the types


def test_a_manifest_error_is_a_wrong_request() -> None:
    assert issubclass(ManifestError, ConfigError)


_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "id", "evaluation", "grading_rubric", "$ref", "name", "x-a"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(_VALUES)
@settings(deadline=None, max_examples=150)
def test_any_plain_values_are_a_manifest_or_a_manifest_error(value: Any) -> None:
    with contextlib.suppress(ManifestError):
        manifest = Manifest.load({"definitions": {"a": value}})
        assert Manifest.load(manifest.model_dump(by_alias=True)) == manifest
