"""The options that `assay certify plan` and `run` share, and what they come to."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from assay.certify import CertifySettings, Runner
from assay.datasets import FetchRules

from .eval_overrides import count, parse_seconds
from .judge_backends import read_endpoint_option

_CERTIFY_DEFAULTS = CertifySettings()


def add_certify_options(parser: ArgumentParser) -> None:
    """Declare what is certified and how."""
    parser.add_argument("manifest", metavar="MANIFEST.yaml", help="holds the agents")
    parser.add_argument(
        "--agent", metavar="ID", help="one agent (default: all that have an `evaluation`)"
    )
    parser.add_argument(
        "--runner",
        metavar="RUNNER",
        help="what is tested instead of the manifest's own model: module:function, "
        "http://host/v1, cmd:COMMAND; PROVIDER:MODEL[@URL] or an endpoint's FILE.json is the "
        "manifest's own agent on that endpoint",
    )
    parser.add_argument(
        "--tools", metavar="MODULE", help="has a function for each inline tool of the agent"
    )
    parser.add_argument(
        "--judge",
        metavar="PROVIDER:MODEL[@URL]|FILE.json",
        help="where the judge is; another model than the manifest's makes it a rehearsal",
    )
    _add_golden_dataset_options(parser)
    _add_call_options(parser)


def _add_golden_dataset_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--dataset", metavar="PATH|URI", help="rehearse with another dataset: no certificate"
    )
    parser.add_argument(
        "--limit", type=count, metavar="N", help="rehearse with N samples: no certificate"
    )
    parser.add_argument(
        "--allow-private",
        action="store_true",
        help="let the golden dataset be on this machine's network",
    )
    parser.add_argument(
        "--allow-outside",
        action="store_true",
        help="let the golden dataset be outside of the manifest's folder",
    )


def _add_call_options(parser: ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, metavar="N", help="make the seeds of calls from N")
    parser.add_argument(
        "--timeout",
        type=parse_seconds,
        default=_CERTIFY_DEFAULTS.timeout_s,
        metavar="SECONDS",
        help="an agent that takes longer has failed (default: %(default)g)",
    )
    parser.add_argument(
        "--concurrency",
        type=count,
        default=_CERTIFY_DEFAULTS.concurrency,
        metavar="N",
        help="samples in progress at once (default: %(default)s)",
    )
    parser.add_argument(
        "--latency-concurrency",
        type=count,
        default=_CERTIFY_DEFAULTS.latency_concurrency,
        metavar="N",
        help="calls of the agent at once where its times are limited (default: %(default)s)",
    )
    parser.add_argument(
        "--warmup",
        type=_parse_warmup,
        metavar="N",
        help="calls before the first that counts (default: 1 where times are limited)",
    )


def build_certify_settings(args: Namespace) -> CertifySettings:
    """The settings that the options describe. Raises `ConfigError` for wrong ones."""
    return CertifySettings(
        runner=_read_runner_option(args.runner),
        tools=args.tools,
        judge=None if args.judge is None else read_endpoint_option(args.judge),
        dataset=args.dataset,
        limit=args.limit,
        seed=args.seed,
        timeout_s=args.timeout,
        concurrency=args.concurrency,
        latency_concurrency=args.latency_concurrency,
        warmup=args.warmup,
        fetch=FetchRules(allow_outside=args.allow_outside, allow_private=args.allow_private),
    )


def _read_runner_option(text: str | None) -> Runner | None:
    if text is not None and text.lower().endswith(".json") and Path(text).is_file():
        return read_endpoint_option(text)
    return text


def _parse_warmup(text: str) -> int:
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return int(text)
