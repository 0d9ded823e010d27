"""The messages as sent: recorded with each sample, and the same ones when a run is resumed."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from assay.datasets import PromptTemplate
from assay.errors import ConfigError
from assay.runner import EvalConfig, Resume
from assay.runner.sent_messages import digest_messages
from assay.store import Store
from assay.types import Endpoint, Message, Sample
from make import asked, called, said
from misbehaving import Exchange, MisbehavingServer
from runner_runs import NO_RETRIES, rows, run


@pytest.fixture
def server() -> Iterator[MisbehavingServer]:
    with MisbehavingServer() as serving:
        yield serving


class Prompt:
    """A prompt in a file, which somebody may edit between a run and its resumption."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "prompt.txt"
        self.write("Be brief.")

    def write(self, text: str) -> None:
        self._file.write_text(text, "utf-8")

    def prepare(self, sample: Sample) -> list[Message]:
        # As docs/ci.md recommends.
        return [Message(role="system", content=self._file.read_text("utf-8")), *sample.messages]


@pytest.fixture
def prompt(tmp_path: Path) -> Prompt:
    return Prompt(tmp_path)


async def refuses_the_last_four(exchange: Exchange) -> None:
    if int(exchange.call.sample.removeprefix("Say ")) >= 16:
        await exchange.answer(500)
    else:
        await exchange.echo()


def config(
    server: MisbehavingServer, prepare: Callable[[Sample], Any] | None, **settings: Any
) -> EvalConfig:
    endpoint = Endpoint(provider="openai", model="m", api_base=server.url, api_key="k")
    settings = {"score_fn": lambda sample: 1.0, "client": NO_RETRIES, **settings}
    return EvalConfig(endpoint=endpoint, prepare_messages=prepare, **settings)


def test_a_prompt_file_that_was_edited_is_refused_before_anything_is_paid(
    store: Path, server: MisbehavingServer, prompt: Prompt
) -> None:
    server.react = refuses_the_last_four
    evaluation = config(server, prompt.prepare)
    assert run(rows(20), evaluation, store=store).summary.judged_samples == 16
    calls = len(server.calls)
    server.react = Exchange.echo
    prompt.write("Be verbose.")

    with pytest.raises(ConfigError) as refused:
        run(rows(20), evaluation, store=store, resume="latest")

    assert "the prompt of sample 'r0' changed since the run was started" in str(refused.value)
    assert "restore the prompt, or start a new run" in str(refused.value)
    assert len(server.calls) == calls
    with Store.open(store) as opened:
        assert opened.run().status == "completed"
        assert opened.run().totals.recorded == 16

    prompt.write("Be brief.")
    report = run(rows(20), evaluation, store=store, resume="latest")
    assert report.summary.judged_samples == 20
    assert len(server.calls) == calls + 4
    sent = {str(sample.messages[0].text) for sample in report.samples}
    assert sent == {"Be brief."}


def test_a_change_of_the_prompt_of_one_sample_is_found(
    store: Path, server: MisbehavingServer
) -> None:
    server.react = refuses_the_last_four
    texts = {"r7": "Be brief."}

    def prepare(sample: Sample) -> list[Message]:
        return [Message(role="system", content=texts.get(sample.id, "")), *sample.messages]

    evaluation = config(server, prepare)
    run(rows(20), evaluation, store=store)
    texts["r7"] = "Be verbose."

    with pytest.raises(ConfigError, match="the prompt of sample 'r7' changed"):
        run(rows(20), evaluation, store=store, resume="latest")


def test_rows_in_memory_that_ask_something_else_are_refused_as_well(
    store: Path, server: MisbehavingServer
) -> None:
    server.react = refuses_the_last_four
    evaluation = config(server, None)
    run(rows(20), evaluation, store=store)
    other = [{**row, "question": f"{row['question']}!"} for row in rows(20)]

    with pytest.raises(ConfigError, match="the dataset now gives other messages"):
        run(other, evaluation, store=store, resume="latest")

    server.react = Exchange.echo
    allowed = Resume(allow_changed_dataset=True)
    assert run(other, evaluation, store=store, resume=allowed).summary.judged_samples == 20


def test_a_prompt_that_can_no_longer_be_made_is_refused(
    store: Path, server: MisbehavingServer, prompt: Prompt, tmp_path: Path
) -> None:
    server.react = refuses_the_last_four
    evaluation = config(server, prompt.prepare)
    run(rows(20), evaluation, store=store)
    (tmp_path / "prompt.txt").unlink()

    with pytest.raises(
        ConfigError, match=r"changed since the run was started: it cannot be prepared any more"
    ):
        run(rows(20), evaluation, store=store, resume="latest")


def test_where_no_sample_was_answered_any_prompt_may_be_tried(
    store: Path, server: MisbehavingServer, prompt: Prompt
) -> None:
    async def broken(exchange: Exchange) -> None:
        await exchange.answer(500)

    server.react = broken
    evaluation = config(server, prompt.prepare)
    run(rows(3), evaluation, store=store)
    server.react = Exchange.echo
    prompt.write("Be verbose.")

    assert run(rows(3), evaluation, store=store, resume="latest").summary.judged_samples == 3


def test_the_prompts_of_repeats_are_compared_each_with_its_own(
    store: Path, server: MisbehavingServer
) -> None:
    texts = {"r1#1": "Be brief."}

    def prepare(sample: Sample) -> list[Message]:
        text = texts.get(sample.rollout_id or "", "")
        return [Message(role="system", content=text), *sample.messages]

    evaluation = config(server, prepare, repeats=2)
    run(rows(2), evaluation, store=store)
    assert run(rows(2), evaluation, store=store, resume="latest").summary.results == 4
    texts["r1#1"] = "Be verbose."

    with pytest.raises(ConfigError, match="the prompt of sample 'r1' changed"):
        run(rows(2), evaluation, store=store, resume="latest")


def test_a_dataset_that_can_be_read_once_is_checked_while_it_is_read(
    store: Path, server: MisbehavingServer, prompt: Prompt
) -> None:
    evaluation = config(server, prompt.prepare)
    run(iter(rows(3)), evaluation, store=store)
    calls = len(server.calls)
    prompt.write("Be verbose.")

    with pytest.raises(ConfigError, match="the prompt of sample 'r0' changed"):
        run(iter(rows(5)), evaluation, store=store, resume="latest")
    assert len(server.calls) == calls

    prompt.write("Be brief.")
    report = run(iter(rows(5)), evaluation, store=store, resume="latest")
    assert report.summary.judged_samples == 5


def test_rollouts_of_an_older_assay_are_compared_by_their_messages(
    store: Path, server: MisbehavingServer, prompt: Prompt
) -> None:
    evaluation = config(server, prompt.prepare)
    run(rows(3), evaluation, store=store)
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("UPDATE assay_result SET prompt_digest = NULL")
    connection.close()

    assert run(rows(3), evaluation, store=store, resume="latest").summary.judged_samples == 3
    prompt.write("Be verbose.")
    with pytest.raises(ConfigError, match="the prompt of sample 'r0' changed"):
        run(rows(3), evaluation, store=store, resume="latest")


def test_a_check_that_is_not_wanted_is_left_out(
    store: Path, server: MisbehavingServer, prompt: Prompt
) -> None:
    evaluation = config(server, prompt.prepare)
    run(rows(2), evaluation, store=store)
    prompt.write("Be verbose.")

    resumed = run(rows(3), evaluation, store=store, resume=Resume(check_prompts=False))

    assert resumed.summary.judged_samples == 3


def test_each_attempt_that_was_sent_has_the_digest_of_its_prompt(
    store: Path, server: MisbehavingServer
) -> None:
    async def broken(exchange: Exchange) -> None:
        await (exchange.echo() if exchange.call.sample == "Say 0" else exchange.answer(500))

    def prepare(sample: Sample) -> list[Message]:
        if sample.id == "r2":
            raise KeyError("no prompt")
        return sample.messages

    server.react = broken

    run(rows(3), config(server, prepare), store=store)

    with closing(sqlite3.connect(store)) as connection, connection:
        query = "SELECT sample_id, prompt_digest FROM assay_{} ORDER BY sample_id"
        results = connection.execute(query.format("result")).fetchall()
        attempts = connection.execute(query.format("attempt")).fetchall()
    connection.close()
    assert results == [("r0", digest_messages([asked("Say 0")]))]
    assert attempts == [("r1", digest_messages([asked("Say 1")])), ("r2", None)]


def test_a_digest_tells_messages_apart_by_what_is_sent_of_them() -> None:
    one = [asked("a"), said("b")]

    assert digest_messages(one) == digest_messages([asked("a"), said("b")])
    assert digest_messages(one) != digest_messages([asked("ab")])
    assert digest_messages(one) != digest_messages([said("a"), asked("b")])
    assert digest_messages([]) != digest_messages([asked("")])
    dated = Message(role="user", content="a", timestamp="2026-01-01", metadata={"k": "v"})
    assert digest_messages([dated]) == digest_messages([asked("a")])
    assert digest_messages([Message(role="user", content="a", odd=object())]) is None
    assert digest_messages([Message(role="user", content="a", odd=1)]) != digest_messages(
        [asked("a")]
    )
    unnamed = Message(role="user", content="a", name=None, tool_calls=())
    assert digest_messages([unnamed]) == digest_messages([asked("a")])
    assert digest_messages([said("a", called("look"))]) != digest_messages([said("a")])


def test_a_prompt_template_is_filled_and_recorded_with_its_text(tmp_path: Path) -> None:
    template = PromptTemplate("Q: {question}", name="short.txt")
    answered = EvalConfig(endpoint="mock:echo", score_fn=lambda s: 1.0, prepare_messages=template)

    report = run(rows(2), answered, store=tmp_path)

    assert [sample.response for sample in report.samples] == ["Q: Say 0", "Q: Say 1"]
    assert report.spec.config["prompt"] == {"name": "short.txt", "text": "Q: {question}"}


@pytest.mark.parametrize("as_file", [True, False])
def test_a_field_that_one_row_lacks_is_found_before_the_first_call(
    tmp_path: Path, as_file: bool
) -> None:
    asked: list[str] = []
    data: list[dict[str, Any]] = [*rows(3), {"id": "last", "question": "Say 3", "answer": "3"}]
    for row in data[:3]:
        row["topic"] = "numbers"
    dataset = tmp_path / "rows.json"
    dataset.write_text(json.dumps(data))

    with pytest.raises(ConfigError, match=r"\{topic\} is not a field of sample 'last'"):
        run(
            dataset if as_file else data,
            EvalConfig(
                agent=lambda sample: asked.append(sample.id),
                score_fn=lambda s: 1.0,
                prepare_messages=PromptTemplate("{topic}: {question}"),
            ),
            store=tmp_path / "store",
        )

    assert asked == []
