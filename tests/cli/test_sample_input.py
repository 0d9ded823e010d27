"""What `assay export` reads: runs, files, and summaries of pytest with the samples beside them."""

import gzip
import hashlib
import json
from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from assay.cli.exit_status import InconclusiveError
from assay.cli.sample_input import SampleInput, open_sample_input
from assay.errors import ConfigError
from assay.formats.eval_record import to_eval_record
from assay.types import EvaluateResult, Sample
from make import asked, said, sample

ROWS = [
    sample(asked("?"), said("x"), id="1", score=EvaluateResult(score=1.0), test=f"t.py::{name}")
    for name in ("one", "two")
]


def opened(source: Path) -> SampleInput:
    return open_sample_input(Namespace(source=str(source), store=None), ExitStack())


def lines(*given: Sample) -> str:
    return "".join(f"{each.to_json()}\n" for each in given)


def summary(folder: Path, **changes: Any) -> Path:
    rows = folder / "evals.jsonl"
    rows.write_text(lines(*ROWS))
    digest = hashlib.sha256(rows.read_bytes()).hexdigest()
    plain = {"format": 1, "tests": [], "rows": rows.name, "rows_sha256": digest, **changes}
    path = folder / "evals.json"
    path.write_text(json.dumps(plain))
    return path


def test_a_summary_gives_the_samples_beside_it_though_their_ids_repeat(tmp_path: Path) -> None:
    given = opened(summary(tmp_path))

    found = list(given.samples)

    assert found == [each.model_copy(update={"index": n}) for n, each in enumerate(ROWS)]
    assert [path.name for path in given.files] == ["evals.json", "evals.jsonl"]


def test_a_summary_with_other_samples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the file contains other samples"):
        opened(summary(tmp_path, rows_sha256="0" * 64))


def test_a_summary_without_samples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the samples of the summary are missing"):
        opened(summary(tmp_path, rows="gone.jsonl"))


def test_a_summary_never_names_a_file_elsewhere(tmp_path: Path) -> None:
    outside = tmp_path / "secret.jsonl"
    outside.write_text(lines(*ROWS))
    (tmp_path / "in").mkdir()

    with pytest.raises(ConfigError, match="the samples of the summary are missing"):
        opened(summary(tmp_path / "in", rows="../secret.jsonl"))


def test_any_other_json_file_is_a_dataset(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    path.write_text('[{"question": "1+1?", "answer": "2"}]')

    (found,) = opened(path).samples

    assert found.ground_truth == "2"


def test_evaluation_records_are_read_as_samples(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(to_eval_record(sample(asked("?"), said("x"), id="s")).value))

    (found,) = opened(path).samples

    assert (found.id, found.response) == ("s", "x")


def test_a_fault_in_the_middle_of_a_file_is_not_taken_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl.gz"
    noise = Random(1)
    rows = (sample(asked("?"), said(noise.randbytes(40).hex()), id=str(n)) for n in range(3000))
    whole = gzip.compress(lines(*rows).encode())
    path.write_bytes(whole[: len(whole) // 2])

    with pytest.raises(InconclusiveError):
        list(opened(path).samples)
