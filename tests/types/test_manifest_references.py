"""References of a manifest: where they may stand, where they may lead, and what they never do."""

import os
from pathlib import Path

import pytest

from assay.errors import ManifestError
from assay.types.file_problems import Position
from assay.types.manifest import AgentDefinition, EvaluationProfile, Manifest
from assay.types.manifest_references import read_manifest
from manifest_files import GOOD, refusal, written

AGENT = "type: agent\nid: a\nname: A\nrole: r\ngoal: g\n"
PROFILE = "grading_rubric:\n  - {name: n, description: d, threshold: 0.5}\n"


def agent(manifest: Manifest) -> AgentDefinition:
    found = manifest.definitions["a"]
    assert isinstance(found, AgentDefinition)
    return found


def profile(manifest: Manifest) -> EvaluationProfile:
    found = agent(manifest).evaluation
    assert found is not None
    return found


def test_a_definition_may_stand_in_a_file_of_its_own(tmp_path: Path) -> None:
    written(tmp_path, AGENT, "agents/a.yaml")
    path = written(tmp_path, "definitions: {a: {$ref: agents/a.yaml}}\n")

    manifest = Manifest.load(path)

    assert agent(manifest).goal == "g"
    assert [each.path.name for each in manifest.files] == ["agent.yaml", "a.yaml"]
    assert manifest.files[0].sha256 != manifest.files[1].sha256


def test_an_evaluation_and_its_parts_may_stand_elsewhere_too(tmp_path: Path) -> None:
    written(tmp_path, AGENT + "evaluation: {$ref: ../done.yaml}\n", "agents/a.yaml")
    written(tmp_path, "grading_rubric: {$ref: 'rubric.json#/strict~1all'}\n", "done.yaml")
    written(
        tmp_path,
        '{"strict/all": [{"name": "n", "description": "d", "threshold": 0.5},'
        ' {"$ref": "one.yml"}]}',
        "rubric.json",
    )
    written(tmp_path, "{name: m, description: d, threshold: 0.6}\n", "one.yml")
    path = written(tmp_path, "definitions: {a: {$ref: agents/a.yaml}}\n")

    rubric = profile(Manifest.load(path)).grading_rubric

    assert [(each.name, each.threshold) for each in rubric] == [("n", 0.5), ("m", 0.6)]


def test_a_part_of_the_same_file_may_be_used_twice(tmp_path: Path) -> None:
    text = (
        "x-profiles: {usual: {repeats: 3}}\n"
        f"definitions:\n  a: {{{AGENT.replace(chr(10), ', ')} evaluation: "
        "{$ref: '#/x-profiles/usual'}}\n  b: {$ref: '#/definitions/a'}\n"
    )

    manifest = Manifest.load(written(tmp_path, text))

    assert profile(manifest).repeats == 3
    assert manifest.definitions["b"] == agent(manifest)
    assert Manifest.load(manifest.model_dump(by_alias=True)) == manifest


def test_a_mistake_in_a_file_referred_to_is_told_with_its_line_there(tmp_path: Path) -> None:
    written(tmp_path, AGENT + "evaluation:\n  repeats: 0\n", "a.yaml")

    said = refusal(tmp_path, "definitions:\n  a: {$ref: a.yaml}\n")

    assert said.startswith("a.yaml:7:3: definitions.a.evaluation.repeats: the value is 0")


def test_references_inside_a_schema_are_the_schemas_own(tmp_path: Path) -> None:
    text = f"definitions:\n  a: {{{AGENT.replace(chr(10), ', ')} interface: {{$ref: '#/none'}}}}\n"

    assert agent(Manifest.load(written(tmp_path, text))).interface == {"$ref": "#/none"}


REFUSED = {
    "out of the folder": ("../out.yaml", "leads outside the folder"),
    "out and back into the name": ("../{name}-evil/a.yaml", "leads outside the folder"),
    "absolute": ("/etc/hostname.yaml", "leads outside the folder"),
    "a link out of the folder": ("link.yaml", "leads outside the folder"),
    "a linked folder": ("linked/out.yaml", "leads outside the folder"),
    "an address": ("https://example.com/a.yaml", "is a URL"),
    "a file address": ("file:///etc/a.yaml", "is a URL"),
    "no such file": ("none.yaml", "the file does not exist"),
    "a folder": ("folder.yaml", "the file does not exist"),
    "another kind of file": ("secrets.env", "is not a .yaml/.yml/.json file"),
    "no such part": (
        "ok.yaml#/gaol",
        "'gaol' does not exist in the file\n  hint: did you mean 'goal'?",
    ),
    "a part of text": ("ok.yaml#/goal/x", "'x' does not exist in the file"),
    "a fragment that is no pointer": ("ok.yaml#goal", "is not a valid reference"),
    "itself": ("agent.yaml", "is circular"),
    "a circle": ("circle.yaml", "is circular"),
    "a circle of parts": ("#/definitions/a", "is circular"),
    "a circle through the evaluation": ("inner.yaml", "is circular"),
}


@pytest.mark.parametrize(("reference", "said"), REFUSED.values(), ids=REFUSED)
def test_a_reference_that_leads_elsewhere_is_refused(
    reference: str, said: str, tmp_path: Path
) -> None:
    folder = tmp_path / "here"
    written(tmp_path, AGENT, "out.yaml")
    written(tmp_path, AGENT, "here-evil/a.yaml")
    written(folder, AGENT, "ok.yaml")
    written(folder, "KEY=1", "secrets.env")
    written(folder, "$ref: other.yaml\n", "circle.yaml")
    written(folder, "$ref: circle.yaml\n", "other.yaml")
    written(folder, AGENT + "evaluation: {$ref: inner.yaml}\n", "inner.yaml")
    (folder / "folder.yaml").mkdir()
    (folder / "link.yaml").symlink_to(tmp_path / "out.yaml")
    (folder / "linked").symlink_to(tmp_path)

    told = refusal(folder, f"definitions:\n  a:\n    $ref: '{reference.format(name='here')}'\n")

    assert ": definitions.a" in told
    assert said in told


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ("{$ref: 5}", "`$ref` is 5"),
        ("{$ref: ''}", "`$ref` is ''"),
        ("{$ref: [a.yaml]}", "`$ref` is a list"),
        ("{$ref: ok.yaml, goal: other}", "the fields 'goal' beside `$ref` would be dropped"),
    ],
)
def test_a_reference_is_one_text_and_stands_alone(node: str, said: str, tmp_path: Path) -> None:
    written(tmp_path, AGENT, "ok.yaml")

    assert f"agent.yaml:2:3: definitions.a: {said}" in refusal(
        tmp_path, f"definitions:\n  a: {node}\n"
    )


def test_all_bad_references_are_told_at_once(tmp_path: Path) -> None:
    said = refusal(tmp_path, "definitions:\n  a: {$ref: 5}\n  b: {$ref: none.yaml}\n")

    assert "2 problems" in said
    assert "agent.yaml:2:3: definitions.a" in said
    assert "agent.yaml:3:3: definitions.b" in said


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")

    assert "the file does not exist" in refusal(tmp_path, "definitions: {a: {$ref: pipe.yaml}}\n")


def test_references_cannot_multiply(tmp_path: Path) -> None:
    for number in range(9):
        below = f"[{', '.join(['{$ref: ' + f'f{number + 1}.yaml' + '}'] * 4)}]"
        written(tmp_path, f"grading_rubric: {below}\n", f"f{number}.yaml")
    written(tmp_path, "name: x\n", "f9.yaml")
    text = f"definitions:\n  a: {{{AGENT.replace(chr(10), ', ')} evaluation: {{$ref: f0.yaml}}}}\n"

    assert "the manifest has more than 200 references" in refusal(tmp_path, text)


def test_references_cannot_make_a_small_manifest_large(tmp_path: Path) -> None:
    written(tmp_path, "type: skill\nid: s\nmany: [" + "1," * 19_000 + "]\n", "big.yaml")
    text = "definitions:\n" + "".join(f"  a{n}: {{$ref: big.yaml}}\n" for n in range(9))

    assert "the references expand to more than 100,000 values" in refusal(tmp_path, text)


def test_references_cannot_nest_without_end(tmp_path: Path) -> None:
    for number in range(9):
        deep = "[" * 8 + "{$ref: " + f"d{number + 1}.yaml" + "}" + "]" * 8
        written(tmp_path, f"deeper: {deep}\n", f"d{number}.yaml")
    written(tmp_path, "x: 1\n", "d9.yaml")
    text = f"definitions:\n  a: {{{AGENT.replace(chr(10), ', ')} evaluation: {{$ref: d0.yaml}}}}\n"

    assert "is nested more than 40 deep" in refusal(tmp_path, text)


def test_a_wider_folder_may_be_given(tmp_path: Path) -> None:
    written(tmp_path, AGENT, "shared/a.yaml")
    path = written(tmp_path, "definitions: {a: {$ref: ../shared/a.yaml}}\n", "team/agent.yaml")

    assert agent(Manifest.load(path, root=tmp_path)).id == "a"
    with pytest.raises(ManifestError, match="leads outside the folder"):
        Manifest.load(path)
    with pytest.raises(ManifestError, match="the manifest is outside the folder"):
        Manifest.load(path, root=tmp_path / "shared")


def test_plain_values_need_a_folder_for_their_references(tmp_path: Path) -> None:
    written(tmp_path, AGENT, "a.yaml")
    plain = {"definitions": {"a": {"$ref": "a.yaml"}}}

    assert agent(Manifest.load(plain, root=tmp_path)).id == "a"
    with pytest.raises(ManifestError, match="has no base folder"):
        Manifest.load(plain)


def test_a_manifest_is_read_as_plain_values_with_their_places(tmp_path: Path) -> None:
    path = written(tmp_path)

    document = read_manifest(path, None)

    assert document.value["definitions"]["teller"]["id"] == "teller"
    assert document.positions[("definitions", "teller", "id")] == Position(str(path), 4, 5)
    assert document.root == tmp_path
    assert read_manifest({"definitions": GOOD}, None).root is None
