"""Prompts from files: `{field}` placeholders that are filled from the row of a sample."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_core import to_jsonable_python

from assay.errors import ConfigError
from assay.types import Message, Sample

from .layouts import ANSWER_KEYS, PROMPT_KEYS, Layout, find_ground_truth

_MESSAGE_SUFFIXES = (".json", ".yaml", ".yml")
# An escaped brace, a placeholder, or a brace that is neither.
_TEMPLATE_PART = re.compile(r"\{\{|\}\}|\{([^{}\n]*)\}|[{}]")
_BRACE_HINT = "write {{ and }} for literal braces"
_ANSWER_FIELDS = frozenset({*ANSWER_KEYS, "reward_model", "reward_spec"})
# They are the expected answer in some layouts of rows, and a part of the question in others.
_LAYOUT_ANSWER_FIELDS = frozenset({"chosen", "completion", "output"})
_MAX_RECORDED_CHARS = 20_000


class _MessageTemplate(NamedTuple):
    role: str
    parts: tuple[str, ...]
    """Literal texts, and at odd positions the names of fields between them."""


class PromptTemplate:
    """Messages with `{field}` placeholders. Pass it to `EvalConfig` as `prepare_messages`.

    Values of the row are inserted as they are: braces in them are not placeholders.
    """

    def __init__(self, text: str, *, name: str = "prompt") -> None:
        """Make the template of one user message. Raises `ConfigError` for an invalid text."""
        self.name = name
        self.text = text
        parts = self._split_content(text.rstrip("\r\n"))
        self._messages: tuple[_MessageTemplate, ...] = (_MessageTemplate("user", parts),)
        self._check_fields()

    @classmethod
    def from_messages(cls, text: str, *, name: str = "prompt.yaml") -> "PromptTemplate":
        """Make the template of a JSON or YAML list of messages, each with `role` and `content`."""
        template = cls.__new__(cls)
        template.name, template.text = name, text
        from assay.types import parse_yaml  # PyYAML is loaded for these files only

        document = parse_yaml(text, file=name)
        listed = document.value if isinstance(document.value, list) else []
        messages = []
        for number, each in enumerate(listed or [None]):
            pair = each if isinstance(each, dict) and each.keys() == {"role", "content"} else {}
            role, content = pair.get("role"), pair.get("content")
            if not isinstance(role, str) or not isinstance(content, str):
                raise ConfigError(
                    "the file is not a list of messages, each with the texts `role` and `content`",
                    where=str(document.find_position((number,))),
                    hint='write [{"role": "user", "content": "{question}"}], or a plain text file',
                )
            messages.append(_MessageTemplate(role, template._split_content(content)))
        template._messages = tuple(messages)
        template._check_fields()
        return template

    @property
    def identity(self) -> str:
        """The digest of the messages: a part of the fingerprint of a run."""
        written = json.dumps(self._messages, ensure_ascii=True)
        return hashlib.sha256(written.encode()).hexdigest()[:16]

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the placeholders, each once."""
        names = (name for message in self._messages for name in message.parts[1::2])
        return tuple(dict.fromkeys(names))

    @property
    def layout(self) -> Layout:
        """The layout of rows without a question that have all fields: their prompt is this one."""
        fields = frozenset(self.fields)

        def read(row: dict[str, Any]) -> dict[str, Any]:
            (*others, last) = messages = self._fill(row)
            # One user message is text, as in rows that have a question.
            prompt = messages if others or last.role != "user" else last.text
            return {"prompt": prompt, "ground_truth": find_ground_truth(row)}

        return Layout(self.name, fields, lambda row: row.keys() >= fields, read)

    def describe(self) -> dict[str, str]:
        """Return name and text as recorded with a run; of a long text only its digest."""
        # Without folders: a run can be resumed from another one.
        name = Path(self.name).name
        if len(self.text) <= _MAX_RECORDED_CHARS:
            return {"name": name, "text": self.text}
        return {"name": name, "sha256": hashlib.sha256(self.text.encode()).hexdigest()}

    def __call__(self, sample: Sample) -> list[Message]:
        """Return the messages with the fields of the sample's row.

        Raises `ConfigError` for a missing field.
        """
        row = _read_fields(sample)
        self._check_row(sample, row)
        return self._fill(row)

    def _fill(self, row: Mapping[str, Any]) -> list[Message]:
        return [
            Message(role=role, content=_fill_parts(parts, row)) for role, parts in self._messages
        ]

    def check_samples(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """Yield the samples. Raises `ConfigError` for a missing field and for a leaked answer.

        A field that equals the expected answer in every row is taken for the answer.
        """
        # A question may equal its answer, as in tasks that repeat a text.
        suspects, truths = set(self.fields).difference(PROMPT_KEYS), set[str]()
        for sample in samples:
            row = _read_fields(sample)
            self._check_row(sample, row)
            if sample.ground_truth is not None:
                if suspects:
                    suspects = {name for name in suspects if row[name] == sample.ground_truth}
                if len(truths) < 2:
                    truths.add(repr(sample.ground_truth))
                if leaks := suspects & _LAYOUT_ANSWER_FIELDS:
                    raise self._build_leak_error(min(leaks))
            yield sample
        # With one answer in all rows, a constant field may equal it by chance.
        if suspects and len(truths) > 1:
            raise self._build_leak_error(min(suspects))

    def _split_content(self, content: str) -> tuple[str, ...]:
        parts, literal, end = [], "", 0
        for match in _TEMPLATE_PART.finditer(content):
            literal += content[end : match.start()]
            end = match.end()
            if match[0] in ("{{", "}}"):
                literal += match[0][0]
            elif match[1] is None:
                line = content[: match.start()].split("\n")[-1]
                raise ConfigError(
                    f"the brace {match[0]!r} after {line[-30:]!r} is not part of a placeholder",
                    where=self._locate(line + match[0]),
                    hint=_BRACE_HINT,
                )
            else:
                parts += [literal, match[1].strip()]
                literal = ""
        return (*parts, literal + content[end:])

    def _check_fields(self) -> None:
        if not self.fields:
            raise ConfigError(
                "the prompt has no placeholder, so every sample would get the same prompt",
                where=self.name,
                hint="write the name of a field of the dataset in braces, such as {question}",
            )
        for name in self.fields:
            if name in _ANSWER_FIELDS:
                raise self._build_leak_error(name)

    def _check_row(self, sample: Sample, row: Mapping[str, Any]) -> None:
        for name in self.fields:
            if name not in row:
                known = [each for each in row if each not in _ANSWER_FIELDS]
                # A generated id does not tell which row it is.
                place = "" if sample.index is None else f", row {sample.index + 1} of the dataset"
                raise ConfigError(
                    f"the placeholder {{{name}}} is not a field of sample {sample.id!r}{place}",
                    where=self._locate(f"{{{name}}}"),
                    hint=f"the fields are: {', '.join(known) or 'none'}; {_BRACE_HINT}",
                )

    def _build_leak_error(self, name: str) -> ConfigError:
        return ConfigError(
            f"the placeholder {{{name}}} is the expected answer, which a prompt must not contain",
            where=self._locate(f"{{{name}}}"),
            hint=f"remove {{{name}}} from the prompt; if it is not the answer, rename the field",
        )

    def _locate(self, part: str) -> str:
        """Return the file and the first line with this part of the text."""
        # By search: a message of a YAML file does not start in the first line.
        for number, line in enumerate(self.text.splitlines(), start=1):
            if part in line or part in line.replace("{ ", "{").replace(" }", "}"):
                return f"{self.name}:{number}"
        return self.name


def read_prompt(path: str | Path) -> PromptTemplate:
    """Read a prompt with `{field}` placeholders: a text file, or a JSON or YAML list of messages.

    Raises `ConfigError` for an invalid file. `{{` and `}}` are literal braces.
    """
    path = Path(path)
    from assay.types import read_limited_text  # shares its module with the reader of YAML

    text = read_limited_text(path)
    if path.suffix.lower() in _MESSAGE_SUFFIXES:
        return PromptTemplate.from_messages(text, name=str(path))
    return PromptTemplate(text, name=str(path))


def _read_fields(sample: Sample) -> Mapping[str, Any]:
    # Samples that were made in Python may have a prompt and no row.
    return sample.input or ({"prompt": sample.prompt} if isinstance(sample.prompt, str) else {})


def _fill_parts(parts: tuple[str, ...], row: Mapping[str, Any]) -> str:
    texts = []
    for position, part in enumerate(parts):
        value = part if position % 2 == 0 else row[part]
        # An absent value is an empty text, as the empty cell of a CSV file is.
        if value is not None and not isinstance(value, str):
            # A date or a decimal is a text in JSON, and is inserted without its quotes.
            value = to_jsonable_python(value, fallback=str)
            value = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        texts.append(value or "")
    return "".join(texts)
