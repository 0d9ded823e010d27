"""Secrets of an endpoint are sent to it, and are found nowhere else."""

from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from misbehaving import Exchange, MisbehavingServer
from processes import Evaluation, Recorded, assay, names, programs, write_rows

Start = Callable[..., Evaluation]

KEY, HEADER, QUERY, USER, PASSWORD, VARIABLE, COOKIE, DEEP = (
    f"c4n4ry-{name}-Zq8/{number}+x"
    for number, name in enumerate("key hdr qry usr pwd env coo dee".split())
)
BASIC = b64encode(f"{USER}:{PASSWORD}".encode()).decode()
CANARIES = ("c4n4ry", BASIC)
"""In every secret there is the first, however it is quoted; but not in the one that is encoded."""

SENT = ("authorization", "x-team-token", "cookie")
BAD = ["500", "400", "403", "404", "html", "garbled", "gateway", "escaped", "reset", "redirect"]
FINE = names(3, "fine")


class Telltale:
    """Repeats in its complaints everything it was told, in every way a server may."""

    def __init__(self, *, refuses: bool = False) -> None:
        self._refuses = refuses
        self.told = ""

    async def react(self, exchange: Exchange) -> None:
        call = exchange.call
        # A client shows the beginning of a complaint: what is harmless would only take the room.
        own = {name: call.headers[name] for name in SENT if name in call.headers}
        told = f"{call.path} {own} {call.body.decode()}"
        told = f"no session {COOKIE}: {told}" if COOKIE in told else told
        self.told += told
        kind = "401" if self._refuses else call.sample
        if kind.isdigit():
            await exchange.answer(int(kind), {"error": {"message": told, "type": "told"}})
        elif kind == "html":
            await exchange.answer(502, f"<html><p>{told}</p></html>".encode())
        elif kind == "garbled":
            await exchange.answer(200, told.encode())
        elif kind == "gateway":
            await exchange.answer(200, {"error": {"code": 503, "message": told}})
        elif kind == "escaped":
            spelled = "".join(f"\\u{ord(character):04x}" for character in told)
            await exchange.answer(500, f'{{"detail": "{spelled}"}}'.encode())
        elif kind == "reset":
            await exchange.reset()
        elif kind == "redirect":
            await exchange.answer(307, None, Location=f"http://127.0.0.1:9{call.path}")
        else:
            await exchange.echo()


def endpoints(host: str) -> dict[str, dict[str, Any]]:
    """Every way to give an endpoint a secret."""
    common = {
        "provider": "openai",
        "model": "m",
        "headers": {"X-Team-Token": HEADER, "Cookie": f"theme=dark; session={COOKIE}"},
        "extra_params": {"user": {"credentials": [{"key": DEEP}]}},
    }
    user = f"{quote(USER, safe='')}:{quote(PASSWORD, safe='')}"
    return {
        "key": {
            **common,
            "api_base": f"http://{host}/v1?code={quote(QUERY, safe='')}",
            "api_key": KEY,
        },
        "token": {**common, "api_base": f"http://{host}/v1", "oauth_token": KEY},
        "address": {**common, "api_base": f"http://{user}@{host}/v1"},
        "environment": {**common, "api_base": f"http://{host}/v1"},
    }


def found_in(folder: Path, evaluation: Evaluation) -> list[str]:
    """Where one of the secrets is found: in files, or in what was printed."""
    # The logs of stderr are among the files.
    texts = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    texts["stdout"] = evaluation.stdout.encode()
    return [
        f"{where}: {data[max(place - 40, 0) : place + 40]!r}"
        for where, data in texts.items()
        for canary in CANARIES
        if (place := data.find(canary.encode())) >= 0
    ]


def test_secrets_are_in_no_file_and_in_no_output(
    tmp_path: Path, server: MisbehavingServer, start: Start
) -> None:
    telltale = Telltale()
    server.react = telltale.react
    dataset = write_rows(tmp_path / "data.jsonl", [*FINE, *BAD])
    every = [
        {
            "dataset": dataset,
            "store": tmp_path / f"{way}.db",
            "endpoint": endpoint,
            "client": {"max_retries": 1, "cache": tmp_path / way},
            "config": {"concurrency": 1},
            "verbose": True,
        }
        for way, endpoint in endpoints(server.host).items()
    ]

    run = start(programs(every), OPENAI_API_KEY=VARIABLE)

    assert run.ended() == 0, run.stderr
    # The server was told, or there would be nothing to find; and there were files to look in.
    told = ("c4n4ry-key", "c4n4ry-hdr", "c4n4ry-qry", "c4n4ry-env", COOKIE, DEEP, BASIC)
    assert [text for text in told if text not in telltale.told] == []
    for way in endpoints(server.host):
        attempts = Recorded(tmp_path / f"{way}.db").attempts
        assert sorted(attempts) == sorted(BAD)
        assert "[redacted]" in attempts["500"].message
        assert len(list((tmp_path / way).rglob("*.json"))) == len(FINE)
    assert found_in(tmp_path, run) == []


def test_secrets_are_in_no_error_that_ends_a_run(
    tmp_path: Path, store: Path, server: MisbehavingServer, start: Start
) -> None:
    telltale = Telltale(refuses=True)
    server.react = telltale.react
    dataset = write_rows(tmp_path / "data.jsonl", FINE)
    every = [
        {"dataset": dataset, "store": store, "endpoint": endpoint, "verbose": True}
        for endpoint in endpoints(server.host).values()
    ]

    run = start(programs(every), OPENAI_API_KEY=VARIABLE)

    assert run.ended() == 3
    assert [error["kind"] for error in run.said("error")] == ["AccessDenied"] * len(every)
    assert "Traceback" in run.stderr
    assert HEADER in telltale.told
    assert found_in(tmp_path, run) == []


FILE = """
import os

from assay.runner import EvalConfig
from assay.types import Endpoint

config = EvalConfig(
    endpoint=Endpoint(
        provider="openai", model="m", api_base=os.environ["ADDRESS"], api_key=os.environ["KEY"]
    ),
    score_fn=lambda sample: 1.0,
)
dataset = "data.jsonl"
"""


def test_secrets_are_in_nothing_that_commands_print(
    tmp_path: Path, store: Path, server: MisbehavingServer, start: Start
) -> None:
    server.react = Telltale().react
    write_rows(tmp_path / "data.jsonl", [*FINE, "400", "403"])
    (tmp_path / "file.py").write_text(FILE)
    secrets = {"ADDRESS": f"http://{server.host}/v1?code={quote(QUERY, safe='')}", "KEY": KEY}

    evaluated = start(assay("eval", "file.py", "--store", store, "--concurrency", 1), **secrets)
    assert evaluated.ended() == 3
    shown = start(assay("show", "latest", "400", "--store", store))
    assert shown.ended() == 0, shown.stderr
    doctor = start(
        assay("doctor", "--json", "--store", store, "--model", f"openai:m@{secrets['ADDRESS']}"),
        OPENAI_API_KEY=VARIABLE,
    )
    doctor.ended()

    assert "2 failed" in evaluated.stderr
    assert "[redacted]" in shown.stdout
    assert "127.0.0.1" in doctor.stdout
    assert [found_in(tmp_path, each) for each in (evaluated, shown, doctor)] == [[], [], []]
