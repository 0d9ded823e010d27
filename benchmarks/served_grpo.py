"""GRPO against a served model beside GRPO in one process: does it learn the same?

The task is to answer with the letter "a": a fresh model of 30,000 weights, 24 steps of 32 rollouts,
the same seeds, prompts and settings everywhere. `local` samples in the process of the trainer;
`served K` samples from `examples/serve` in a process of its own, with `max_staleness=K`. There each
update takes `--wait` seconds more, as with a larger model, and every rollout a third of that, as
with a slow environment: sampling runs ahead of learning, and the last column shows what their
overlap saves. `plain K` is the control, without importance weights.

    python benchmarks/served_grpo.py [--seeds 3] [--steps 24] [--wait 0.3] [--json]
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

SERVER = Path(__file__).parents[1] / "examples" / "serve" / "chat_server.py"
PROMPTS = [{"id": str(number), "prompt": f"say a {number}"} for number in range(8)]
WINDOW = 3
"""Steps at either end over which rewards are averaged."""


@dataclass(frozen=True)
class Curve:
    """One training."""

    rewards: list[float]
    staleness: float | None
    """Mean over steps; None in one process."""

    staleness_max: int | None
    stale: int
    weight: float
    """Mean importance weight."""

    capped: float
    seconds: float


def train(
    folder: Path, *, seed: int, steps: int, wait_s: float, server: str | None, **fields: Any
) -> Curve:
    from assay.train import GRPOConfig, TrainingSession, character_model, grpo_train

    async def score(sample: Any) -> float:
        """The share of the answer that is the letter a."""
        await asyncio.sleep(wait_s)
        return float(sample.response.count("a") / max(1, len(sample.response)))

    started = time.perf_counter()
    letters = "abcdefghijklmnopqrstuvwxyz 0123456789"
    result = grpo_train(
        GRPOConfig(
            model_name="letters",
            num_steps=steps,
            output=folder / "out",
            prompts_per_step=4,
            group_size=8,
            max_tokens=8,
            learning_rate=1e-2,
            seed=seed,
            server=server,
            **fields,
        ),
        PROMPTS,
        score,
        model=character_model(letters, seed=seed, hidden=32, layers=2),
        session=TrainingSession(store=folder / "store.db"),
    )
    done = result.steps
    known = [step.staleness for step in done if step.staleness is not None]
    weights = [step.importance_weight for step in done if step.importance_weight is not None]
    capped = [step.importance_capped for step in done if step.importance_capped is not None]
    return Curve(
        rewards=[step.reward or 0.0 for step in done],
        staleness=sum(known) / len(known) if known else None,
        staleness_max=max((step.staleness_max or 0 for step in done), default=None),
        stale=sum(step.stale for step in done),
        weight=sum(weights) / max(1, len(weights)),
        capped=sum(capped) / max(1, len(capped)),
        seconds=time.perf_counter() - started,
    )


def build_slow_update(wait_s: float) -> Any:
    """Upload the weights, then wait: the trainer is busy, and rollouts continue."""
    from assay.train import UploadWeights

    upload = UploadWeights()

    async def update(weights: Any, endpoint: Any) -> None:
        await upload(weights, endpoint)
        await asyncio.sleep(wait_s)

    return update


def patch_weights() -> AbstractContextManager[Any]:
    """Let every importance weight be 1."""

    def weigh_nothing(terms: Any, *, cap: float | None) -> Any:
        return terms.old_N.new_ones(terms.old_N.shape)

    return patch("assay.train.losses.compute_importance_weight", weigh_nothing)


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Serve the model that a folder holds, and yield the address."""
    command = [sys.executable, str(SERVER), str(folder), "--port", "0", "--device", "cpu"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.wait(timeout=30)


def write_model(folder: Path) -> None:
    """The architecture matters, not the weights: a training sends its own."""
    from assay.train import character_model

    local = character_model("abcdefghijklmnopqrstuvwxyz 0123456789", hidden=32, layers=2, seed=99)
    local.model.save_pretrained(folder)
    local.tokenizer.save_pretrained(folder)


def average(values: list[float]) -> float:
    return sum(values) / len(values)


def describe(name: str, curves: list[Curve]) -> str:
    first = average([average(curve.rewards[:WINDOW]) for curve in curves])
    middle = average([curve.rewards[len(curve.rewards) // 2] for curve in curves])
    lasts = [average(curve.rewards[-WINDOW:]) for curve in curves]
    known = [curve.staleness for curve in curves if curve.staleness is not None]
    lag = (
        "-" if not known else f"{average(known):.1f} ({max(c.staleness_max or 0 for c in curves)})"
    )
    return (
        f"{name:10} {first:7.3f} {middle:7.3f} {average(lasts):7.3f} {min(lasts):7.3f}"
        f"   {lag:>9} {sum(curve.stale for curve in curves):6}"
        f" {average([curve.weight for curve in curves]):8.3f}"
        f" {average([curve.capped for curve in curves]):8.1%}"
        f" {average([curve.seconds for curve in curves]):8.1f}"
    )


HEAD = "sampling     first  middle    last  lowest   staleness  stale   weight   capped        s"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--wait", type=float, default=0.3, metavar="SECONDS")
    parser.add_argument("--staleness", type=int, nargs="*", default=[0, 1, 4], metavar="K")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    kinds: dict[str, dict[str, Any]] = {"local": {}}
    update = build_slow_update(args.wait)
    for most in args.staleness:
        kinds[f"served {most}"] = {"max_staleness": most, "update_weights": update}
    if most := max(args.staleness, default=0):
        kinds[f"plain {most}"] = {"max_staleness": most, "update_weights": update}
    if not args.json:
        print(HEAD, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder) / "letters")
        with serve(Path(folder) / "letters") as url:
            for name, fields in kinds.items():
                weights = patch_weights() if name.startswith("plain") else nullcontext()
                with weights:
                    curves = [
                        train(
                            Path(folder) / f"{name}-{seed}",
                            seed=seed,
                            steps=args.steps,
                            wait_s=args.wait / 3,
                            server=None if name == "local" else url,
                            **fields,
                        )
                        for seed in range(args.seeds)
                    ]
                if args.json:
                    print(json.dumps({"sampling": name, "curves": list(map(asdict, curves))}))
                else:
                    print(describe(name, curves), flush=True)


if __name__ == "__main__":
    main()
