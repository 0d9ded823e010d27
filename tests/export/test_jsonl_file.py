"""One JSON object on each line."""

from pathlib import Path

import pytest

from assay.errors import WireError
from assay.export.jsonl_file import JsonLinesFile, encode_json_line


def test_a_row_is_one_line_of_plain_characters(tmp_path: Path) -> None:
    file = JsonLinesFile(tmp_path / "a.jsonl")
    file.write({"text": "é\n"})
    file.close()

    assert (tmp_path / "a.jsonl").read_text(encoding="utf-8") == '{"text":"é\\n"}\n'


@pytest.mark.parametrize("value", [float("nan"), "\ud800", object()])
def test_values_that_json_does_not_have_are_refused(value: object) -> None:
    with pytest.raises(WireError, match="the row cannot be written as JSON"):
        encode_json_line({"a": value})
