"""The options that `assay certify plan` and `run` share, and the settings built from them."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from assay.certify import CertifySettings, Runner
from assay.datasets import FetchRules

from .arguments import add_count, add_flag, parse_seconds, parse_whole_number
from .judge_backends import read_endpoint_option

# Help texts show the defaults of the settings themselves.
_CERTIFY_DEFAULTS = CertifySettings()


def add_certify_options(parser: ArgumentParser) -> None:
    """Declare the agent, the dataset and the call options of a certification."""
    parser.add_argument(
        "manifest", metavar="MANIFEST.yaml", help="manifest that defines the agents"
    )
    parser.add_argument(
        "--agent", metavar="ID", help="certify one agent (default: all that have an `evaluation`)"
    )
    parser.add_argument(
        "--runner",
        metavar="RUNNER",
        help="test this instead of the manifest's own model: module:function, "
        "http://host/v1, cmd:COMMAND; PROVIDER:MODEL[@URL] or an endpoint's FILE.json runs the "
        "manifest's own agent on that endpoint",
    )
    parser.add_argument(
        "--tools", metavar="MODULE", help="module with a function for each inline tool of the agent"
    )
    parser.add_argument(
        "--judge",
        metavar="PROVIDER:MODEL[@URL]|FILE.json",
        help="endpoint of the judge; with a model other than the manifest's the result is not "
        "certifiable",
    )
    _add_golden_dataset_options(parser)
    _add_call_options(parser)


def _add_golden_dataset_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--dataset", metavar="PATH|URI", help="use another dataset; the result is not certifiable"
    )
    add_count(parser, "--max-samples", "run N samples only; the result is not certifiable")
    add_flag(parser, "--allow-private", "allow a golden dataset on a private network address")
    add_flag(parser, "--allow-outside", "allow a golden dataset outside the manifest's folder")


def _add_call_options(parser: ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, metavar="N", help="derive the seeds of calls from N")
    parser.add_argument(
        "--timeout-s",
        type=parse_seconds,
        default=_CERTIFY_DEFAULTS.timeout_s,
        metavar="SECONDS",
        help="fail an agent call that takes longer (default: %(default)g)",
    )
    add_count(
        parser,
        "--concurrency",
        "samples in progress at once",
        default=_CERTIFY_DEFAULTS.concurrency,
    )
    add_count(
        parser,
        "--latency-concurrency",
        "concurrent agent calls when latency is a criterion",
        default=_CERTIFY_DEFAULTS.latency_concurrency,
    )
    parser.add_argument(
        "--warmup",
        type=parse_whole_number,
        metavar="N",
        help="uncounted calls before the first measured one (default: 1 when latency is a "
        "criterion)",
    )


def build_certify_settings(args: Namespace) -> CertifySettings:
    """Build the settings from the options. Raises `ConfigError` for invalid ones."""
    runner: Runner | None = args.runner
    # Only an existing file: `x.json` may also be the end of a command or of a URL.
    if args.runner is not None and is_endpoint_file(args.runner):
        runner = read_endpoint_option(args.runner)
    return CertifySettings(
        runner=runner,
        tools=args.tools,
        judge=None if args.judge is None else read_endpoint_option(args.judge),
        dataset=args.dataset,
        max_samples=args.max_samples,
        seed=args.seed,
        timeout_s=args.timeout_s,
        concurrency=args.concurrency,
        latency_concurrency=args.latency_concurrency,
        warmup=args.warmup,
        fetch=FetchRules(allow_outside=args.allow_outside, allow_private=args.allow_private),
    )


def is_endpoint_file(text: str) -> bool:
    """Whether the value of a runner option is the JSON file of an endpoint."""
    return text.lower().endswith(".json") and Path(text).is_file()
