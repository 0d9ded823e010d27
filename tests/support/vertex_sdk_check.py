"""Loads rows with Vertex's own SDK and prints what became of them. Run where the SDK is."""

import json
import logging
import sys
from importlib import import_module
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


def sent(types: Any, path: str) -> list[dict[str, Any]]:
    """The cases that `assay judge` makes of rows, as plain values."""
    from assay.scorers.judges.vertex_service import build_eval_case

    with open(path, encoding="utf-8") as file:
        cases = [build_eval_case(types, json.loads(line)) for line in file]
    return [compared(case) for case in cases]


def compared(case: Any) -> dict[str, Any]:
    """What the service is told of a case: its own name and further columns are not."""
    ours = {"eval_case_id", "session_id", "title", "created", "metadata"}
    plain: dict[str, Any] = case.model_dump(mode="json", exclude_none=True, exclude=ours)
    return plain


def checked(path: str, complaints: Warnings) -> dict[str, Any]:
    """What became of the rows of one file."""
    types: Any = import_module("agentplatform.types")
    converters: Any = import_module("agentplatform._genai._evals_data_converters")
    utils: Any = import_module("agentplatform._genai._evals_utils")
    complaints.texts = []
    loader = utils.EvalDatasetLoader.__new__(utils.EvalDatasetLoader)
    rows = loader.load(path)
    schema = converters.auto_detect_dataset_schema(rows)
    dataset = converters.get_dataset_converter(schema).convert(rows)
    again = types.EvaluationDataset.model_validate(dataset.model_dump(mode="json"))
    same = [] if complaints.texts else sent(types, path)
    return {
        "schema": str(getattr(schema, "value", schema)),
        "warnings": complaints.texts,
        "cases": [described(case) for case in dataset.eval_cases],
        "round_trip": len(again.eval_cases) == len(dataset.eval_cases),
        "same_as_sent": [
            compared(case) == other for case, other in zip(dataset.eval_cases, same, strict=False)
        ],
    }


def main(paths: list[str]) -> None:
    complaints = Warnings()
    logging.getLogger().addHandler(complaints)
    print(json.dumps([checked(path, complaints) for path in paths]))


if __name__ == "__main__":
    main(sys.argv[1:])
