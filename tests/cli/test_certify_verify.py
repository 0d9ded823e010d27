"""`assay certify verify`: exit statuses, and words that never promise too much."""

import json
import sys
from pathlib import Path

import pytest

from assay.cli import main
from certificates import change, issued
from certifying import golden, profile


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    golden(tmp_path, rows=3)
    return issued(tmp_path, profile()).relative_to(tmp_path)


def verify(certificate: Path, *options: str) -> int:
    return main(["certify", "verify", str(certificate), "--manifest", "agent.yaml", *options])


def test_a_signed_certificate_verifies(
    certificate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(certificate, "--key", "key.pub.pem") == 0

    lines = capsys.readouterr().out.splitlines()
    assert "tested as     certifying:right" in lines
    assert "not checked   dataset content: sha256:" in "\n".join(lines)
    assert lines[-1] == "verdict       VERIFIED, and signed"
    assert max(map(len, lines)) <= 80


def test_each_mismatch_is_told_with_both_sides(
    certificate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rubric = ("definitions", "helper", "evaluation", "grading_rubric", 0)
    change(Path("agent.yaml"), *rubric, "threshold", to=0.5)

    assert verify(certificate, "--key", "key.pub.pem") == 1

    printed = capsys.readouterr().out
    assert (
        "MISMATCH      exact_answer: threshold\n"
        "                expected  0.5\n"
        "                found     0.9\n"
    ) in printed
    assert "verdict       NOT VERIFIED: 2 of " in printed


def test_an_unsigned_certificate_is_never_called_signed(
    certificate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = certificate.with_name("certificate.json")

    assert verify(plain) == 1
    assert verify(plain, "--key", "key.pub.pem") == 1
    assert verify(certificate) == 1
    refused = capsys.readouterr().out
    assert verify(plain, "--allow-unsigned") == 0
    assert verify(certificate, "--allow-unsigned") == 0

    allowed = capsys.readouterr().out
    assert "VERIFIED, but unsigned: anybody could have written it" in allowed
    assert "VERIFIED, but its signature was not checked" in allowed
    assert "and signed" not in refused + allowed


def test_a_forged_certificate_is_refused_without_a_word_of_it(
    certificate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["certify", "keygen", "-o", "other.pem"])
    capsys.readouterr()

    assert verify(certificate, "--key", "other.pub.pem") == 1

    printed = capsys.readouterr().out
    assert "found     no signature by a given key" in printed
    assert "helper" not in printed
    assert verify(certificate, "--key", "other.pub.pem", "--key", "key.pub.pem") == 0


def test_json_says_what_the_text_says(
    certificate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(certificate, "--key", "key.pub.pem", "--refetch-dataset", "--json") == 0

    told = json.loads(capsys.readouterr().out)
    assert (told["exit_status"], told["verified"], told["signature"]) == (0, True, "signed")
    assert {each["status"] for each in told["findings"]} == {"ok"}
    assert told["certification"]["agent"]["id"] == "helper"


def test_what_must_have_been_tested_can_be_required(certificate: Path) -> None:
    key = ("--key", "key.pub.pem")

    assert verify(certificate, *key, "--require-subject", f"gitCommit:{'0123abcd' * 5}") == 0
    assert verify(certificate, *key, "--require-subject", f"sha256:{'0' * 64}") == 1
    assert verify(certificate, *key, "--require-runner", "certifying:right") == 0
    assert verify(certificate, *key, "--require-runner", "own model mock:echo") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("none.json",), "none.json: the certificate cannot be read"),
        (("out/result.json",), "the file is not a certificate"),
        (("out/certificate.json", "--key", "key.pem"), "the file contains a private key"),
        (
            ("out/certificate.json", "--key", "key.pub.pem", "--allow-unsigned"),
            "`keys` and `allow_unsigned` contradict each other",
        ),
        (("out/certificate.json", "--agent", "nobody"), "no agent 'nobody'"),
        (("out/certificate.json", "--require-subject", "x"), "is not ALGORITHM:DIGEST"),
    ],
)
def test_a_wrong_request_exits_2(
    arguments: tuple[str, ...],
    message: str,
    certificate: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert verify(Path(arguments[0]), *arguments[1:]) == 2

    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err


def test_a_dataset_out_of_reach_exits_3(
    certificate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ("definitions", "helper", "evaluation", "golden_dataset_uri")
    change(Path("agent.yaml"), *place, to="http://127.0.0.1:9/golden.jsonl")

    options = ("--key", "key.pub.pem", "--refetch-dataset", "--allow-private")
    assert verify(certificate, *options) == 3
    assert "127.0.0.1" in capsys.readouterr().err


def test_words_of_a_certificate_do_not_act_on_the_terminal(
    certificate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = certificate.with_name("certificate.json")
    text = plain.read_text().replace("certifying:right", "x\\u001b[2J\\u202e")
    plain.write_text(text)

    # A runner that cannot be found is not the one that was certified.
    assert verify(plain, "--allow-unsigned") == 1
    assert verify(plain, "--allow-unsigned", "--require-runner", "y") == 1

    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "\u202e" not in printed


def test_a_metric_is_not_imported_and_prints_nothing(
    certificate: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("chatty_metric_of_verify.py").write_text("print('hi')\ndef score(sample): return 1\n")
    rubric = ("definitions", "helper", "evaluation", "grading_rubric", 0)
    change(Path("agent.yaml"), *rubric, "metric", to="chatty_metric_of_verify:score")

    assert verify(certificate, "--key", "key.pub.pem", "--json") == 1

    captured = capsys.readouterr()
    assert json.loads(captured.out)["verified"] is False
    assert "hi" not in captured.err


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (("--max-age", "30d", "--max-tries", "1"), 0),
        (("--max-age", "0d"), 2),
        (("--max-age", "soon"), 2),
        (("--max-tries", "0"), 2),
    ],
)
def test_age_and_tries_can_be_limited(
    options: tuple[str, ...], status: int, certificate: Path
) -> None:
    assert verify(certificate, "--key", "key.pub.pem", *options) == status
