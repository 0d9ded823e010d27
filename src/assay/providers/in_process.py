"""The adapter for models in this process: batched, with sampled ids and logprobs."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from time import monotonic
from typing import Any

from assay.errors import AssayError, ConfigError
from assay.types import Endpoint, Message, ModelCall, ToolSpec, Usage

from .adapter import Attempt
from .attempt_errors import AttemptError, ErrorKind, build_timeout_error
from .chat_prompts import ChatPrompts, Prompt
from .daemon_threads import run_in_thread
from .in_process_batches import BatchAnswer, Job
from .in_process_decoder import NEVER, Generated, Sampling
from .in_process_folder import LocalOptions, check_folder, load_shared_model, parse_local_options
from .in_process_model import LocalModel
from .local_settings import build_unreadable_calls_error
from .prices import FREE_PRICE, Price, add_cost
from .reply import Reply
from .tool_call_json import ParsedTurn
from .tool_text import (
    CallStyle,
    detect_call_style,
    knows_reasoning,
    opens_reasoning,
    read_turn,
    writes_channels,
)

__all__ = ["NEVER", "Generated", "LocalAdapter", "LocalClient", "LocalModel", "Sampling"]

MAX_BATCH = 64
_ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

LocalRequest = tuple[tuple[Message, ...], Sequence[ToolSpec], int | None]


@dataclass(frozen=True)
class _LocalAnswer:
    """A completion with the context to parse it."""

    prompts: ChatPrompts
    prompt: Prompt
    tools: Sequence[ToolSpec]
    sampling: Sampling
    answered: BatchAnswer


class LocalAdapter:
    """Renders prompts for one model in this process, and parses its completions."""

    def __init__(
        self,
        endpoint: Endpoint,
        load: Callable[[], Awaitable[LocalModel]],
        *,
        price: Price | None = None,
        max_batch: int = MAX_BATCH,
    ) -> None:
        self._options: LocalOptions = parse_local_options(endpoint)
        self._model = endpoint.model
        self._timeout_s = endpoint.timeout_s
        self._load = load
        self._price = price
        self.at_once = max_batch
        self._local: LocalModel | None = None
        self._prompts: ChatPrompts | None = None

    def write(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], seed: int | None
    ) -> tuple[LocalRequest, None]:
        """Return the messages unchanged: the template is known once the model is loaded."""
        return (tuple(messages), tools, seed), None

    async def send(self, request: LocalRequest) -> _LocalAnswer:
        """Sample a completion, in a batch with other queued calls."""
        messages, tools, seed = request
        local, prompts = await self._ensure_loaded()
        prompt = prompts.prompt(messages, tools)
        if tools and not prompt.tools_unseen:
            self._check_format(prompts, tools)
        sampling = self._fit_sampling(local, prompt)
        if seed is not None:
            # The turns of a rollout share one seed: used directly, they would repeat the choices.
            written = f"{seed}:{','.join(map(str, prompt.ids))}".encode()
            seed = int.from_bytes(blake2b(written, digest_size=7).digest())
        job = Job(prompt.ids, sampling, seed, self._build_stop_check(prompts, prompt))
        try:
            async with asyncio.timeout(self._timeout_s):
                answered = await local.batches.answer(job, local, max_batch=self.at_once)
        except TimeoutError as error:
            raise build_timeout_error(self._timeout_s) from error
        return _LocalAnswer(prompts, prompt, tools, sampling, answered)

    def read(self, answer: _LocalAnswer, attempt: Attempt) -> Reply:
        """Parse the sampled message, and record the call with its exact tokens."""
        generated = answer.answered.generated
        message = self._read_message(answer)
        answer.prompts.remember(message, answer.prompt, generated.ids)
        finish = generated.finish_reason
        usage = Usage(input_tokens=len(answer.prompt.ids), output_tokens=len(generated.ids))

        recorded: dict[str, Any] = {
            name: getattr(answer.sampling, name)
            for name in ("temperature", "top_p", "top_k", "max_tokens")
        }
        if self._options.stop:
            recorded["stop"] = list(self._options.stop)
        if self._options.template:
            recorded["chat_template_kwargs"] = dict(self._options.template)
        if attempt.seed is not None:
            recorded["seed"] = attempt.seed
        fields: dict[str, Any] = {
            "prompt_ids": answer.prompt.ids,
            "completion_ids": generated.ids,
            "logprobs": generated.logprobs,
            "sampling": recorded,
            "model": self._model,
            "weight_version": answer.answered.weight_version,
            "finish_reason": "tool_calls" if message.tool_calls and finish == "stop" else finish,
            "usage": add_cost(usage, self._price),
            "latency_s": attempt.latency_s,
            "attempts": attempt.number,
            "message_index": attempt.message_index,
        }
        if finish == "length" and answer.sampling.max_tokens < self._options.sampling.max_tokens:
            fields["context_full"] = True
        if answer.prompt.lost:
            fields["lost"] = answer.prompt.lost
        return Reply(message, ModelCall.model_validate(fields))

    async def check_tools(self, tools: Sequence[ToolSpec]) -> None:
        """Raise `ConfigError` if tool calls could not be parsed from the model's text."""
        try:
            _, prompts = await self._ensure_loaded()
        except AttemptError:
            return  # a model that cannot be loaded is reported by the call that needs it
        self._check_format(prompts, tools)

    async def close(self) -> None:
        """Release the model; it stays loaded for other clients that use it."""
        self._local = self._prompts = None

    async def _ensure_loaded(self) -> tuple[LocalModel, ChatPrompts]:
        if self._local is None or self._prompts is None:
            local = await self._load()
            where, settings = f"local:{self._model}", self._options.template
            # A concurrent call may have finished first: keep its cache of turns.
            if self._prompts is None:
                self._prompts = ChatPrompts(local.tokenizer, where=where, settings=settings)
                self._local = local
            return local, self._prompts
        return self._local, self._prompts

    def _fit_sampling(self, local: LocalModel, prompt: Prompt) -> Sampling:
        sampling = self._options.sampling
        if not sampling.stop_ids:
            sampling = replace(sampling, stop_ids=local.stop_ids)
        if local.context is None:
            return sampling
        left = local.context - len(prompt.ids)
        if left >= sampling.max_tokens:
            return sampling
        if left < 1:
            raise AttemptError(
                ErrorKind.REFUSED,
                f"the prompt has {len(prompt.ids)} tokens: the context length is {local.context}",
                hint="shorten the conversation, or use a model with a longer context",
            )
        return replace(sampling, max_tokens=left)

    def _build_stop_check(
        self, prompts: ChatPrompts, prompt: Prompt
    ) -> Callable[[Sequence[int]], bool] | None:
        stop = self._options.stop
        if not stop:
            return None
        # About one token per character at most, and 4 more as a margin.
        reach = max(map(len, stop)) + 4

        def hits_stop(ids: Sequence[int]) -> bool:
            text = prompts.decode(ids[-reach:], after=(*prompt.ids[-reach:], *ids[:-reach]))
            return any(each in text for each in stop)

        return hits_stop

    def _check_format(self, prompts: ChatPrompts, tools: Sequence[ToolSpec]) -> None:
        template = prompts.template(tools)
        if self._find_style(template) is None:
            hint = "use a model with a supported chat template"
            raise build_unreadable_calls_error(template, where=f"local:{self._model}", hint=hint)

    def _find_style(self, template: str) -> CallStyle | None:
        return self._options.tool_format or detect_call_style(template)

    def _read_message(self, answer: _LocalAnswer) -> Message:
        style = self._find_style(answer.prompts.template(answer.tools))
        if (answer.tools and style is not None) or writes_channels(style):
            # The marks of calls and reasoning may be special tokens.
            written = self._read_turn(answer, special=True)
            if written.calls or writes_channels(style):
                content, reasoning = written.content, written.reasoning
                for token in answer.prompts.special:
                    content = content.replace(token, "")
                    reasoning = None if reasoning is None else reasoning.replace(token, "")
                written = replace(written, content=content, reasoning=reasoning)
                return _to_assistant_message(_assign_stable_call_ids(written, answer))
        return _to_assistant_message(self._read_turn(answer, special=False))

    def _read_turn(self, answer: _LocalAnswer, *, special: bool) -> ParsedTurn:
        prompts, prompt, generated = answer.prompts, answer.prompt, answer.answered.generated
        ids = generated.ids
        if ids[-1] in answer.sampling.stop_ids:
            ids = ids[:-1]
        text = prompts.decode(ids, after=prompt.ids, special=special)
        starts = [start for each in self._options.stop if (start := text.find(each)) >= 0]
        text = text[: min(starts)] if starts else text
        template = prompts.template(answer.tools)
        style = self._find_style(template)
        opened = opens_reasoning(prompt.text, style)
        return read_turn(
            text,
            style,
            tools=answer.tools if special else (),
            opened=opened,
            reasons=opened or knows_reasoning(template, style),
            cut_short=generated.finish_reason == "length",
        )


class LocalClient:
    """A `ModelClient` for a model in memory, such as one in training."""

    def __init__(
        self, local: LocalModel, endpoint: Endpoint, *, max_batch: int = MAX_BATCH
    ) -> None:
        async def load() -> LocalModel:
            return local

        if max_batch < 1:
            raise ConfigError(f"max_batch={max_batch!r} is not at least 1", where="LocalClient")
        self.endpoint = endpoint
        self._adapter = LocalAdapter(endpoint, load, price=FREE_PRICE, max_batch=max_batch)
        # Fails early for a tokenizer without a chat template.
        ChatPrompts(local.tokenizer, where=f"local:{endpoint.model}", settings={})

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        seed: int | None = None,
    ) -> Reply:
        """Return the model's next message. Raises `EndpointError` if the call fails."""
        seed = self.endpoint.seed if seed is None else seed
        request, _ = self._adapter.write(messages, tools, seed)
        started = monotonic()
        try:
            answer = await self._adapter.send(request)
            spent_s = monotonic() - started
            return self._adapter.read(answer, Attempt(spent_s, 1, seed, len(messages), None))
        except AttemptError as fault:
            raise fault.error(where=f"local:{self.endpoint.model}", attempts=1) from fault

    async def check_tools(self, tools: Sequence[ToolSpec]) -> None:
        """Raise `ConfigError` if tool calls could not be parsed from the model's text."""
        await self._adapter.check_tools(tools)

    async def close(self) -> None:
        """Do nothing: the model belongs to the caller."""


def build_folder_adapter(endpoint: Endpoint, price: Price | None) -> LocalAdapter:
    """Build the adapter for a model folder. It is checked now, and loaded on first use."""
    options, folder = parse_local_options(endpoint), check_folder(endpoint)

    async def load() -> LocalModel:
        try:
            return await run_in_thread(lambda: load_shared_model(folder, options))
        except AssayError as error:
            raise AttemptError(ErrorKind.REFUSED, error.message, hint=error.hint) from error

    return LocalAdapter(endpoint, load, price=price)


def _to_assistant_message(written: ParsedTurn) -> Message:
    fields: dict[str, Any] = {"role": "assistant", "content": written.content}
    if written.calls:
        fields["tool_calls"] = written.calls
    if written.reasoning is not None:
        fields["reasoning"] = written.reasoning
    return Message(**fields)


def _assign_stable_call_ids(written: ParsedTurn, answer: _LocalAnswer) -> ParsedTurn:
    # Deterministic, so that the same completion yields the same transcript. Nine letters and
    # digits, since Mistral's templates accept no other form.
    source = f"{answer.prompt.ids}{answer.answered.generated.ids}"
    calls = []
    for index, call in enumerate(written.calls):
        if not call.id:
            digest = blake2b(f"{index}:{source}".encode(), digest_size=8).digest()
            number, letters = int.from_bytes(digest), ""
            for _ in range(9):
                number, letter = divmod(number, len(_ALPHABET))
                letters += _ALPHABET[letter]
            call = call.model_copy(update={"id": letters})
        calls.append(call)
    return replace(written, calls=tuple(calls))
