"""Loads rows with Vertex's own SDK and prints what became of them. Run where the SDK is."""

import json
import logging
import sys
from typing import Any


class Warnings(logging.Handler):
    """Keeps what the SDK complains about: it drops what it cannot read with a mere warning."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def parts_of(content: Any) -> list[str]:
    """What a content is made of, in one word each."""
    return [
        "call"
        if part.function_call
        else "response"
        if part.function_response
        else "thought"
        if part.thought
        else "text"
        for part in content.parts
    ]


def described(case: Any) -> dict[str, Any]:
    """A case as plain values, as far as a test asks."""
    texts = [response.response.parts[0].text for response in case.responses or ()]
    instruction = case.system_instruction
    return {
        "session_id": case.session_id,
        "prompt": case.prompt.parts[0].text,
        "prompt_role": case.prompt.role,
        "responses": texts,
        "reference": case.reference.response.parts[0].text if case.reference else None,
        "instruction": instruction.parts[0].text if instruction else None,
        "history": [message.content.role for message in case.conversation_history or ()],
        "events": [parts_of(event.content) for event in case.intermediate_events or ()],
        "turns": [
            [[event.author, *parts_of(event.content)] for event in turn.events]
            for turn in case.agent_data.turns
        ],
        "agents": sorted(case.agent_data.agents),
    }


def main(path: str) -> None:
    from agentplatform import types  # type: ignore[import-not-found]  # only in its own place
    from agentplatform._genai import (  # type: ignore[import-not-found]  # as above
        _evals_data_converters,
        _evals_utils,
    )

    complaints = Warnings()
    logging.getLogger().addHandler(complaints)
    loader = _evals_utils.EvalDatasetLoader.__new__(_evals_utils.EvalDatasetLoader)
    rows = loader.load(path)
    schema = _evals_data_converters.auto_detect_dataset_schema(rows)
    dataset = _evals_data_converters.get_dataset_converter(schema).convert(rows)
    again = types.EvaluationDataset.model_validate(dataset.model_dump(mode="json"))
    print(
        json.dumps(
            {
                "schema": str(getattr(schema, "value", schema)),
                "warnings": complaints.texts,
                "cases": [described(case) for case in dataset.eval_cases],
                "round_trip": len(again.eval_cases) == len(dataset.eval_cases),
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])
