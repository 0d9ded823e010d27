"""Tokens: context, sampled and masked, with shades where probabilities are recorded."""

from pathlib import Path

import pytest

from assay.errors import ConfigError
from assay.store import Store
from assay.types import ModelCall
from assay.web import ViewServer, ViewSettings
from make import asked, said
from recorded_pages import record_run
from recorded_samples import build, tokens
from sample_fixtures import SampleViewer
from tiny_trainer import tiny_tokenizer


def test_sampled_tokens_have_a_shade(sample_viewer: SampleViewer) -> None:
    view = sample_viewer.json("tokens", "/tokens")

    assert [token["kind"][0] for token in view["tokens"]] == list("cccsscsss")
    assert [token["shade"] for token in view["tokens"][3:5]] == [0, 4]
    assert (view["total"], view["sampled"], view["chains"]) == (9, 5, 1)
    assert view["tokens"][0]["text"] is None
    assert "--tokenizer FOLDER" in sample_viewer.text("tokens", "/tokens")


def test_a_sample_without_tokens_says_so(sample_viewer: SampleViewer) -> None:
    view = sample_viewer.json("judged", "/tokens")

    assert view["problem"] == "the engine returned no `prompt_ids`"
    assert "No tokens" in sample_viewer.text("judged", "/tokens")


def test_own_masks_chains_and_pages(empty_store: Store) -> None:
    masked = tokens(0)
    masked.tokens = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    masked.loss_mask = [0, 0, 0, 1, 0, 0, 1, 1, 1]
    calls = [
        ModelCall(prompt_ids=tuple(range(3000)), completion_ids=(1,)),
        ModelCall(prompt_ids=(7,), completion_ids=(8,)),
    ]
    forked = build(1, "forked", [asked("a"), said("b")], calls=calls)
    record_run(empty_store, "run", [masked, forked])

    with ViewServer(empty_store) as server:
        viewer = SampleViewer(server, empty_store)
        own = viewer.json("tokens", "/tokens", run="run")
        first = viewer.json("forked", "/tokens", run="run")
        rest = viewer.json("forked", f"/tokens?from={first['next']}", run="run")
        other = viewer.json("forked", "/tokens?chain=1", run="run")
        missing = viewer.get(f"{viewer.path('forked', 'run')}/tokens?chain=2")

    assert own["masked"] == 1
    assert own["tokens"][4]["kind"] == "masked"
    assert (first["chains"], first["total"], len(first["tokens"])) == (2, 3001, 2000)
    assert len(rest["tokens"]) == 1001
    assert [token["id"] for token in other["tokens"]] == [7, 8]
    assert missing[0] == 404


@pytest.mark.slow
def test_a_tokenizer_gives_texts(empty_store: Store, tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    ids = tuple(tokenizer.encode("hello"))
    calls = [ModelCall(prompt_ids=ids, completion_ids=(*ids, 10**9))]
    record_run(empty_store, "run", [build(0, "spoken", [asked("a"), said("b")], calls=calls)])

    with ViewServer(empty_store, ViewSettings(tokenizer=tmp_path / "tokenizer")) as server:
        view = SampleViewer(server, empty_store).json("spoken", "/tokens", run="run")

    texts = [token["text"] for token in view["tokens"]]
    assert "".join(texts[: len(ids)]) == tokenizer.decode(ids)
    assert len(texts) == 2 * len(ids) + 1


def test_a_folder_without_a_tokenizer_is_refused(empty_store: Store, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tokenizer"):
        ViewServer(empty_store, ViewSettings(tokenizer=tmp_path / "none"))
