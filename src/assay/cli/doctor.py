"""`assay doctor`: check the installed packages, the store and the endpoints."""

import asyncio
import os
import platform
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from assay import __version__
from assay.errors import DISTRIBUTION, AssayError, install_command
from assay.providers import PROVIDERS, EndpointCheck, check_endpoint, parse_model
from assay.stats import format_labelled
from assay.types import Endpoint

from .eval_overrides import (
    add_key_option,
    add_plain_http_option,
    apply_key_option,
    apply_plain_http_option,
)
from .exit_status import EXIT_INCONCLUSIVE, EXIT_PASS
from .output import format_field, print_report, sanitize_to_line
from .resume import redact_option_value
from .store_option import add_store_option, find_store_location, open_store

_REQUIREMENT = re.compile(r"""(?P<package>[\w.-]+).*;.*extra\s*==\s*['"](?P<extra>[\w-]+)['"]""")
# Users do not install it.
_DEVELOPMENT_EXTRAS = frozenset({"dev"})


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="PROVIDER:MODEL[@URL]",
        help="check this endpoint by listing its models (repeatable)",
    )
    add_key_option(parser)
    add_plain_http_option(parser)
    add_store_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def main(args: Namespace) -> int:
    """Exit status: 0 healthy, 3 the store or a checked endpoint does not answer."""
    asked = [
        replace(each, endpoint=apply_plain_http_option(each.endpoint, args))
        for each in (
            *request_named_endpoints(args.model, args),
            *request_endpoints_by_key(os.environ),
        )
    ]
    findings = DoctorReport(
        extras=list(read_extras(_read_requirements())),
        store=check_store(args),
        endpoints=asyncio.run(check_endpoints(asked)),
    )
    print_report(args, findings.lines(), findings.plain())
    return EXIT_PASS if findings.well else EXIT_INCONCLUSIVE


@dataclass(frozen=True)
class Extra:
    """A package that an extra needs, and its installed version."""

    name: str
    package: str
    version: str | None


@dataclass(frozen=True)
class StoreCheck:
    """The outcome of opening the store."""

    where: str
    words: str
    well: bool


@dataclass(frozen=True)
class EndpointRequest:
    """An endpoint to check, and why."""

    name: str
    endpoint: Endpoint
    by_key: str | None = None
    """The variable that holds its key, when the endpoint was found by it rather than named."""


def read_extras(requirements: Iterable[str]) -> Iterator[Extra]:
    """Yield the extras for users, from the package's own requirements."""
    for requirement in requirements:
        match = _REQUIREMENT.match(requirement)
        if match is not None and match["extra"] not in _DEVELOPMENT_EXTRAS:
            yield Extra(match["extra"], match["package"], _find_package_version(match["package"]))


def _read_requirements() -> list[str]:
    try:
        return requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return []  # run from a source tree that is not installed


def _find_package_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def check_store(args: Namespace) -> StoreCheck:
    """Check whether the store opens. A store that does not exist yet is healthy."""
    location = find_store_location(args)
    where = ".assay/assay.db" if location is None else redact_option_value(str(location))
    # Opening would raise, and a fresh project is not a fault.
    if "://" not in where and not _has_store(Path(where)):
        return StoreCheck(where, "the store does not exist yet; `assay eval` creates it", well=True)
    try:
        with open_store(args) as store:
            newest = store.runs(limit=1)
            words = (
                f"opens; its newest run is {newest[0].id}" if newest else "opens; it has no runs"
            )
            return StoreCheck(store.where, words, well=True)
    except AssayError as error:
        return StoreCheck(where, error.message, well=False)


def _has_store(path: Path) -> bool:
    inside = (path / "assay.db", path / ".assay" / "assay.db")
    return any(each.exists() for each in inside) if path.is_dir() else path.exists()


def request_named_endpoints(
    models: list[str], args: Namespace | None = None
) -> Iterator[EndpointRequest]:
    """Yield the endpoints of `--model`. Raises `ConfigError` for an invalid model string."""
    for text in models:
        yield EndpointRequest(
            redact_option_value(text), apply_key_option(parse_model(text), args or Namespace())
        )


def request_endpoints_by_key(environment: Mapping[str, str]) -> Iterator[EndpointRequest]:
    """Yield an endpoint for each provider that has a key in the environment."""
    for name, provider in PROVIDERS.items():
        variable = provider.key_variable
        if variable is not None and environment.get(variable, "").strip():
            # The model is not called: listing the models proves that the key works.
            yield EndpointRequest(name, Endpoint(provider=name, model="any"), by_key=variable)


async def check_endpoints(
    asked: list[EndpointRequest],
) -> list[tuple[EndpointRequest, EndpointCheck]]:
    """Check all endpoints concurrently."""
    checks = await asyncio.gather(*(check_endpoint(each.endpoint) for each in asked))
    return list(zip(asked, checks, strict=True))


@dataclass(frozen=True)
class DoctorReport:
    """The results of all checks."""

    extras: list[Extra]
    store: StoreCheck
    endpoints: list[tuple[EndpointRequest, EndpointCheck]]

    @property
    def well(self) -> bool:
        return self.store.well and all(_works(*each) for each in self.endpoints)

    def lines(self) -> list[str]:
        lines = [
            format_field("python", f"{platform.python_version()} on {platform.system()}"),
            format_field("assay", __version__),
            *_format_extras(self.extras),
            format_field("store", self.store.where),
            *format_labelled("", sanitize_to_line(self.store.words)),
        ]
        for asked, check in self.endpoints:
            lines += _format_endpoint_check(asked, check)
        if not self.endpoints:
            lines += format_labelled(
                "endpoints", "none checked: pass --model, or set a provider's key"
            )
        return lines

    def plain(self) -> dict[str, Any]:
        return {
            "python": platform.python_version(),
            "assay": __version__,
            "extras": [asdict(each) for each in self.extras],
            "store": asdict(self.store),
            "endpoints": [_endpoint_check_to_dict(*each) for each in self.endpoints],
            "well": self.well,
        }


def _format_extras(extras: list[Extra]) -> Iterator[str]:
    for name in dict.fromkeys(extra.name for extra in extras):
        needed = [extra for extra in extras if extra.name == name]
        words = ", ".join(f"{each.package} {each.version}" for each in needed)
        if missing := ", ".join(each.package for each in needed if each.version is None):
            words = f"not installed: {install_command(name)} adds {missing}"
        yield from format_labelled(f"[{name}]", words)


def _works(asked: EndpointRequest, check: EndpointCheck) -> bool:
    return check.verdict == "answers" and (asked.by_key is not None or check.has_model is not False)


def _format_endpoint_check(asked: EndpointRequest, check: EndpointCheck) -> Iterator[str]:
    reason = f" (by {asked.by_key})" if asked.by_key else ""
    took = "" if check.latency_s is None else f" in {check.latency_s:.2f} s"
    yield format_field("endpoint", f"{sanitize_to_line(asked.name)}{reason}")
    yield from format_labelled("", f"{check.verdict}{took}: {sanitize_to_line(check.detail)}")
    if check.proxy is not None:
        yield from format_labelled("", f"through the proxy {sanitize_to_line(check.proxy)}")
    if hint := _choose_endpoint_hint(asked, check):
        yield from format_labelled("", f"hint: {sanitize_to_line(hint)}")


def _choose_endpoint_hint(asked: EndpointRequest, check: EndpointCheck) -> str | None:
    # An endpoint that was found by its key has no requested model that could be missing.
    return None if asked.by_key is not None and check.verdict == "answers" else check.hint


def _endpoint_check_to_dict(asked: EndpointRequest, check: EndpointCheck) -> dict[str, Any]:
    return {
        "endpoint": asked.name,
        "found_by": asked.by_key,
        "verdict": check.verdict,
        "works": _works(asked, check),
        "detail": check.detail,
        "hint": _choose_endpoint_hint(asked, check),
        "latency_s": check.latency_s,
        "proxy": check.proxy,
        "models": None if check.models is None else list(check.models),
    }
