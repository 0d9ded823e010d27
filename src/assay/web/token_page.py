"""The recorded tokens of a sample: context, sampled and masked ones, with their probabilities."""

import math
from collections.abc import Callable, Sequence
from typing import Literal

from starlette.exceptions import HTTPException
from starlette.requests import Request

from assay.errors import TokenError
from assay.store import Store
from assay.train import tokenize_sample
from assay.types import Sample, build_label

from .page import (
    PageModel,
    build_page_routes,
    find_context,
    find_run,
    read_number,
    read_segment,
)
from .render import shorten_line
from .sample_page import build_sample_address

TokenKind = Literal["context", "sampled", "masked"]

_TOKENS_PER_PAGE = 2000
_SHADES = 5


class Token(PageModel):
    """One token."""

    id: int
    text: str | None
    """None without a tokenizer."""

    kind: TokenKind
    logprob: float | None
    shade: int | None
    """0 for a token that was certain, up to 5 for an unlikely one; None if unknown."""


class TokensView(PageModel):
    """The tokens of one chain of calls, each of which continues the tokens before."""

    run_id: str
    key: str
    label: str
    chain: int
    chains: int
    """More than one if calls do not continue the tokens before them."""

    first: int
    total: int
    sampled: int
    masked: int
    """Sampled, but left out of the loss by the sample's own mask."""

    has_logprobs: bool
    has_texts: bool
    tokens: tuple[Token, ...]
    previous: int | None
    next: int | None
    problem: str | None
    """Why tokens are missing."""

    @property
    def base(self) -> str:
        return build_sample_address(self.run_id, self.key)


def read_tokens(store: Store, request: Request) -> TokensView:
    """Read a page of the tokens of a sample."""
    run = find_run(store, read_segment(request, "run_id"))
    found = run.find_sample(read_segment(request, "key"), attempt=read_number(request, "attempt"))
    if found is None:
        raise HTTPException(404, "the run has no such sample")
    sample, problem = found.sample, None
    chain = read_number(request, "chain") or 0
    calls = [] if sample.trajectory is None else sample.trajectory.calls
    try:
        # A training records tokens of the sample itself, other runs those of its calls.
        if sample.tokens and not any(call.completion_ids is not None for call in calls):
            chains = [sample]
        else:
            chains = tokenize_sample(sample)
    except TokenError as error:
        chains, problem = [], error.message
    if chains and chain >= len(chains):
        raise HTTPException(404, "the sample has no such chain of calls")
    shown = chains[chain] if chains else Sample(id=found.sample.id)
    kinds = _classify_tokens(sample, shown)
    first = min(read_number(request, "from") or 0, max(len(shown.tokens) - 1, 0))
    last = first + _TOKENS_PER_PAGE
    decode = find_context(request).decode_token
    return TokensView(
        run_id=run.id,
        key=found.key,
        label=shorten_line(build_label(sample)),
        chain=chain,
        chains=len(chains),
        first=first,
        total=len(shown.tokens),
        sampled=sum(kind != "context" for kind in kinds),
        masked=kinds.count("masked"),
        has_logprobs=shown.rollout_log_probs is not None,
        has_texts=decode is not None,
        tokens=tuple(_build_tokens(shown, kinds, range(first, min(last, len(kinds))), decode)),
        previous=max(first - _TOKENS_PER_PAGE, 0) if first else None,
        next=last if last < len(shown.tokens) else None,
        problem=problem,
    )


def _classify_tokens(sample: Sample, shown: Sample) -> list[TokenKind]:
    """Return the kind of each token. A mask of the sample itself may exclude sampled ones."""
    own = sample.loss_mask if sample.tokens == shown.tokens and sample.loss_mask else None
    kinds: list[TokenKind] = []
    for place, value in enumerate(shown.loss_mask or [0.0] * len(shown.tokens)):
        if not value:
            kinds.append("context")
        else:
            kinds.append("masked" if own is not None and not own[place] else "sampled")
    return kinds


def _build_tokens(
    shown: Sample,
    kinds: Sequence[TokenKind],
    places: range,
    decode: Callable[[int], str] | None,
) -> list[Token]:
    logprobs = shown.rollout_log_probs
    tokens = []
    for place in places:
        number, kind = shown.tokens[place], kinds[place]
        logprob, shade = None, None
        if logprobs is not None and kind != "context":
            logprob = logprobs[place]
            doubt = 1.0 - math.exp(min(logprob, 0.0))
            shade = min(int(doubt * (_SHADES + 1)), _SHADES)
        tokens.append(
            Token(
                id=number,
                text=None if decode is None else decode(number),
                kind=kind,
                logprob=logprob,
                shade=shade,
            )
        )
    return tokens


ROUTES = build_page_routes(
    "/run/{run_id}/sample/{key}/tokens",
    "/api/run/{run_id}/sample/{key}/tokens",
    template="tokens.html",
    section="runs",
    read=read_tokens,
)
