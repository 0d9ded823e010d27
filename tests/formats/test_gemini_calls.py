"""Streams of Gemini put together again."""

from typing import Any

from assay.formats import EventReader, GeminiStream
from streamed_answers import event


def test_the_log_probabilities_of_all_chunks_are_joined() -> None:
    def chunk(text: str, *ids: int) -> Any:
        chosen = [{"tokenId": each, "logProbability": -1.0} for each in ids]
        content = {"role": "model", "parts": [{"text": text}]}
        return {"content": content, "logprobsResult": {"chosenCandidates": chosen}}

    stream = GeminiStream()
    for candidate in (chunk("one ", 1, 2), chunk("two", 3), {"finishReason": "STOP"}):
        for each in EventReader().feed(event({"candidates": [candidate]})):
            stream.add(each)

    (whole,) = stream.build_answer()["candidates"]

    assert whole == {**chunk("one two", 1, 2, 3), "finishReason": "STOP"}
