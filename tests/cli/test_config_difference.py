"""What differs between two runs."""

from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from assay.cli.config_difference import ConfigDifference, find_config_difference
from assay.cli.output import format_lines
from assay.store import RunSpec, Store


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def difference(
    folder: Path, *configs: dict[str, Any], datasets: tuple[tuple[str, str | None], ...]
) -> ConfigDifference:
    with Store.open(folder / "a.db") as store:
        runs = [
            store.start_run(
                RunSpec(
                    id=f"run-{number}",
                    name="run",
                    config=config,
                    config_fingerprint=str(number),
                    dataset=name,
                    dataset_fingerprint=fingerprint,
                )
            )
            for number, (config, (name, fingerprint)) in enumerate(
                zip(configs, datasets, strict=True)
            )
        ]
        return find_config_difference(runs[0], runs[1])


SAME = (("rows.jsonl", "1"), ("rows.jsonl", "1"))


def shown(found: ConfigDifference) -> list[str]:
    return format_lines(found.lines(), None).splitlines()


def test_the_text_of_a_prompt_is_compared_line_by_line(tmp_path: Path) -> None:
    old = {"seed": 1, "prompt": {"name": "a", "text": "Be brief.\n  Answer:\x1b[2J {question}"}}
    new = {"seed": 1, "prompt": {"name": "b", "text": f"Be brief.\n  Think: {'漢' * 50}"}}

    found = difference(tmp_path, old, new, datasets=SAME)

    lines = shown(found)
    assert lines[:6] == [
        "differ in     prompt",
        "  prompt.name: 'a' -> 'b'",
        "  prompt:",
        "    @@ -1,2 +1,2 @@",
        "     Be brief.",
        "    -  Answer:\ufffd[2J {question}",
    ]
    assert lines[6].startswith("    +  Think: 漢")
    assert lines[6].endswith("…")
    assert cell_len(lines[6]) <= 80
    assert found.plain()["prompt_diff"][-1] == f"+  Think: {'漢' * 50}"


def test_long_differences_are_cut_and_counted(tmp_path: Path) -> None:
    texts = ["\n".join(f"{word} {number}" for number in range(100)) for word in ("old", "new")]
    configs = [
        {"prompt": {"text": text}, **{f"s{number:02}": text for number in range(12)}}
        for text in texts
    ]

    lines = shown(difference(tmp_path, *configs, datasets=SAME))

    assert "  and 2 more settings" in lines
    assert lines[-1] == "    and 161 more lines"


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (("other.jsonl", "2"), "rows.jsonl -> other.jsonl"),
        (("rows.jsonl", "2"), "rows.jsonl has changed between the runs"),
        (("rows.jsonl", None), None),
    ],
)
def test_another_dataset_is_named(
    second: tuple[str, str | None], words: str | None, tmp_path: Path
) -> None:
    found = difference(tmp_path, {"seed": 1}, {"seed": 1}, datasets=(SAME[0], second))

    assert found.dataset == words
    if words is not None:
        assert shown(found) == ["differ in     dataset", f"  dataset: {words}"]


def test_equal_runs_differ_in_nothing(tmp_path: Path) -> None:
    found = difference(tmp_path, {"seed": 1}, {"seed": 1}, datasets=SAME)

    assert shown(found) == ["differ in     nothing of their configurations"]
