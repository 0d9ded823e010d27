"""A model in this process that says what it is told to, token by token."""

from collections.abc import Sequence
from copy import deepcopy

from assay.providers.in_process import Generated, LocalModel, Sampling
from assay.providers.in_process_decoder import ShouldStop
from tiny_models import Family, tiny_tokenizer, tiny_weights


class Saying(LocalModel):
    """Takes its completions from a list of texts or ids; the end of the turn is put after texts."""

    def __init__(
        self,
        family: Family,
        *said: str | Sequence[int],
        template: str | None = None,
        special: Sequence[str] = (),
    ) -> None:
        tokenizer = tiny_tokenizer(family)
        if template is not None:
            tokenizer = deepcopy(tokenizer)
            tokenizer.chat_template = template
            tokenizer.add_special_tokens(
                {"extra_special_tokens": [*tokenizer.all_special_tokens, *special]}
            )
        super().__init__(tiny_weights(family), tokenizer, threads=1)
        self.batches_seen: list[int] = []
        self.seeds_seen: list[int | None] = []
        self._said = list(said)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sequence[Sampling] | Sampling,
        *,
        seeds: Sequence[int | None],
        should_stop: ShouldStop | None = None,
    ) -> list[Generated]:
        self.batches_seen.append(len(prompts))
        self.seeds_seen += seeds
        return [self._next() for _ in prompts]

    def _next(self) -> Generated:
        said = self._said.pop(0)
        if isinstance(said, str):
            said = [*self.tokenizer.encode(said, add_special_tokens=False), self.stop_ids[0]]
        finish = "stop" if said[-1] in self.stop_ids else "length"
        return Generated(tuple(said), (-0.5,) * len(said), finish)  # type: ignore[arg-type]  # two literals
