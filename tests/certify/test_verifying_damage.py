"""Damaged certificates: whatever is in the file, an error in words and never a traceback."""

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.certify import VerifyPolicy, verify_certificate
from assay.certify.certificate_file import MAX_CERTIFICATE_BYTES, read_certificate
from assay.cli import main
from assay.errors import AssayError, WireError
from certificates import issued
from certifying import JUDGED, RIGHT, golden, judge, profile

WRONG: tuple[Any, ...] = (
    *(None, True, -1, 1.5, 10**400, "", "x", "\ud800", [], {}, [None], {"a": 1}),
    *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damaged")
    golden(folder, rows=3)
    evaluation = profile(RIGHT, JUDGED, evaluator_model="mock:script", expected_latency_ms=60_000)
    issued(folder, evaluation, judge=judge(1.0))
    return folder


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value, but for the whole."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in inner:
        yield (*place, key)
        if isinstance(each, dict | list):
            yield from places(each, (*place, key))


def changed(value: Any, place: tuple[Any, ...], *to: Any) -> Any:
    """A copy with another value in one place, or without it."""
    whole = inner = copy.deepcopy(value)
    for key in place[:-1]:
        inner = inner[key]
    if to:
        inner[place[-1]] = to[0]
    else:
        del inner[place[-1]]
    return whole


def verify(folder: Path, data: bytes) -> bool:
    """Whether a file with this content verifies; False where it is refused."""
    path = folder / "damaged.json"
    path.write_bytes(data)
    policy = VerifyPolicy(allow_unsigned=True)
    try:
        return verify_certificate(path, folder / "agent.yaml", policy=policy).verified
    except AssayError:
        return False


def test_a_wrong_value_anywhere_gives_no_traceback(folder: Path) -> None:
    # Some values may differ without harm. None may end in another exception than ours, which
    # `verify` lets through.
    whole = json.loads((folder / "out/certificate.json").read_text())
    draw = random.Random(7)

    for place in places(whole):
        verify(folder, json.dumps(changed(whole, place)).encode())
        verify(folder, json.dumps(changed(whole, place, draw.choice(WRONG))).encode())


@pytest.mark.parametrize("key", ["verdict", "finished"])
@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_what_once_gave_a_traceback_does_not(folder: Path, key: str, value: Any) -> None:
    whole = json.loads((folder / "out/certificate.json").read_text())
    place = ("predicate", "certification", key)

    assert not verify(folder, json.dumps(changed(whole, place, value)).encode())
    assert not verify(folder, json.dumps(changed(whole, place)).encode())


@pytest.mark.parametrize("name", ["certificate.json", "certificate.dsse.json"])
def test_a_file_that_ends_early_or_has_a_byte_turned_is_refused(folder: Path, name: str) -> None:
    data = (folder / "out" / name).read_bytes()
    draw = random.Random(11)

    for _ in range(100):
        place = draw.randrange(len(data))
        assert not verify(folder, data[:place])
        verify(folder, data[:place] + bytes([draw.randrange(256)]) + data[place + 1 :])


FILES: dict[str, bytes] = {
    "empty": b"",
    "binary": bytes(range(256)),
    "a list": b"[]",
    "a number": b"1e999",
    "deep": b"[" * 200_000,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "huge": b" " * (MAX_CERTIFICATE_BYTES + 1),
    "a long number": b'{"_type": ' + b"1" * 10_000 + b"}",
    "an empty envelope": b'{"payload": "", "payloadType": "application/vnd.in-toto+json"}',
    "a deep envelope": b'{"payload": ' + b"[" * 5000 + b"]" * 5000 + b', "signatures": []}',
}


@pytest.mark.parametrize("data", FILES.values(), ids=FILES)
def test_a_file_of_another_kind_is_refused(
    folder: Path, data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "other.json"
    path.write_bytes(data)
    with pytest.raises(WireError):
        read_certificate(data, where="other.json")

    status = main(["certify", "verify", str(path), "--manifest", str(folder / "agent.yaml")])

    assert status == 2
    told = capsys.readouterr().err
    assert told.startswith(str(path))
    assert "Traceback" not in told
