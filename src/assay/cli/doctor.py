"""`assay doctor`: check the installed packages, the store and the endpoints; list plug-ins."""

import asyncio
import os
import platform
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, Self

from assay import __version__
from assay.agents import AGENT_NAMES, find_agent_plugin
from assay.environments import ENVIRONMENT_NAMES, find_environment_plugin
from assay.errors import DISTRIBUTION, AssayError, install_command
from assay.export import FORMATS, find_format
from assay.providers import PROVIDERS, EndpointCheck, check_endpoint, find_provider, parse_model
from assay.registry import PluginEntry, list_plugins
from assay.scorers import METRICS, RULES, find_check_rule, find_metric
from assay.sessions import SESSION_SOURCES, find_session_source
from assay.train import METRIC_SINKS, find_metric_sink
from assay.types import Endpoint

from .arguments import add_report_options
from .eval_overrides import add_endpoint_options, apply_endpoint_options
from .exit_status import EXIT_INCONCLUSIVE, EXIT_PASS
from .output import (
    format_field,
    format_wrapped,
    print_report,
    redirect_output_to_stderr,
    sanitize_to_line,
)
from .ready_evals import find_eval_plugin, find_own_evals
from .resume import redact_option_value
from .store_option import add_store_option, find_store_location, open_store

_REQUIREMENT = re.compile(r"""(?P<package>[\w.-]+).*;.*extra\s*==\s*['"](?P<extra>[\w-]+)['"]""")
# Users do not install them.
_DEVELOPMENT_EXTRAS = frozenset({"dev", "docs", "test"})


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="PROVIDER:MODEL[@URL]",
        help="check this endpoint by listing its models (repeatable)",
    )
    add_endpoint_options(parser)
    add_store_option(parser)
    add_report_options(parser)


def main(args: Namespace) -> int:
    """Exit status: 0 healthy, 3 the store or a checked endpoint does not answer."""
    requests = [
        # Redacted: the address may contain a password.
        EndpointRequest(redact_option_value(text), apply_endpoint_options(parse_model(text), args))
        for text in args.model
    ]
    requests += (
        replace(each, endpoint=apply_endpoint_options(each.endpoint, args, key=False))
        for each in request_endpoints_by_key(os.environ)
    )
    try:
        requirements = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        requirements = []  # run from a source tree that is not installed
    # Plug-ins may print when they are imported.
    with redirect_output_to_stderr():
        plugins = list_all_plugins()
    report = DoctorReport(
        plugins=plugins,
        extras=list(read_extras(requirements)),
        store=check_store(args),
        endpoints=asyncio.run(check_endpoints(requests)),
    )
    print_report(args, report.lines(), report.plain())
    return EXIT_PASS if report.well else EXIT_INCONCLUSIVE


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


@dataclass(frozen=True)
class CheckedEndpoint:
    """The outcome of checking an endpoint."""

    endpoint: str
    found_by: str | None
    verdict: str
    works: bool
    detail: str
    hint: str | None
    latency_s: float | None
    proxy: str | None
    models: tuple[str, ...] | None

    @classmethod
    def of(cls, request: EndpointRequest, check: EndpointCheck) -> Self:
        answers, by_key = check.verdict == "answers", request.by_key is not None
        return cls(
            endpoint=request.name,
            found_by=request.by_key,
            verdict=check.verdict,
            # An endpoint that was found by its key has no requested model that could be missing.
            works=answers and (by_key or check.has_model is not False),
            detail=check.detail,
            hint=None if answers and by_key else check.hint,
            latency_s=check.latency_s,
            proxy=check.proxy,
            models=check.models,
        )


def read_extras(requirements: Iterable[str]) -> Iterator[Extra]:
    """Yield the extras for users, from the package's own requirements."""
    for requirement in requirements:
        match = _REQUIREMENT.match(requirement)
        if match is None or match["extra"] in _DEVELOPMENT_EXTRAS:
            continue
        installed = None
        with suppress(PackageNotFoundError):
            installed = version(match["package"])
        yield Extra(match["extra"], match["package"], installed)


def check_store(args: Namespace) -> StoreCheck:
    """Check whether the store opens. A store that does not exist yet is healthy."""
    location = find_store_location(args)
    where = ".assay/assay.db" if location is None else redact_option_value(str(location))
    path = Path(where)
    files = [path / "assay.db", path / ".assay" / "assay.db"] if path.is_dir() else [path]
    # Opening would raise, and a fresh project is not a fault.
    if "://" not in where and not any(file.exists() for file in files):
        return StoreCheck(where, "the store does not exist yet; `assay eval` creates it", well=True)
    try:
        with open_store(args) as store:
            newest = store.runs(limit=1)
            found = f"its newest run is {newest[0].id}" if newest else "it has no runs"
            return StoreCheck(store.where, f"opens; {found}", well=True)
    except AssayError as error:
        return StoreCheck(where, error.message, well=False)


def request_endpoints_by_key(environment: Mapping[str, str]) -> Iterator[EndpointRequest]:
    """Yield an endpoint for each provider that has a key in the environment."""
    asked = set()
    for name, provider in PROVIDERS.items():
        found = (each for each in provider.key_variables if environment.get(each, "").strip())
        variable = next(found, None)
        address = provider.address_variable
        if variable is None or (address is not None and not environment.get(address, "").strip()):
            continue
        # Two APIs of one company share address and key: one request checks both.
        if (provider.api_base, variable) not in asked:
            asked.add((provider.api_base, variable))
            # The model is not called: listing the models proves that the key works.
            yield EndpointRequest(name, Endpoint(provider=name, model="any"), by_key=variable)


async def check_endpoints(requests: list[EndpointRequest]) -> list[CheckedEndpoint]:
    """Check all endpoints concurrently."""
    # All at once: an endpoint that does not answer costs its whole timeout.
    checks = await asyncio.gather(*(check_endpoint(each.endpoint) for each in requests))
    return [CheckedEndpoint.of(*pair) for pair in zip(requests, checks, strict=True)]


def list_all_plugins() -> dict[str, list[PluginEntry]]:
    """List the names of every group that plug-ins extend. Plug-ins are imported."""
    return {
        "providers": list_plugins("assay.providers", PROVIDERS, find_provider),
        "agents": list_plugins("assay.agents", AGENT_NAMES, find_agent_plugin),
        "environments": list_plugins(
            "assay.environments", ENVIRONMENT_NAMES, find_environment_plugin
        ),
        "scorers": list_plugins("assay.scorers", METRICS, find_metric),
        "check_rules": list_plugins("assay.check_rules", RULES, find_check_rule),
        "session_sources": list_plugins(
            "assay.session_sources", SESSION_SOURCES, find_session_source
        ),
        "export_formats": list_plugins("assay.export_formats", FORMATS, find_format),
        "evals": list_plugins("assay.evals", find_own_evals(), find_eval_plugin),
        "metric_sinks": list_plugins("assay.metric_sinks", METRIC_SINKS, find_metric_sink),
    }


# Shorter than the column of labels.
_GROUP_LABELS = {
    "check_rules": "check rules",
    "session_sources": "sources",
    "export_formats": "formats",
    "metric_sinks": "trackers",
}


@dataclass(frozen=True)
class DoctorReport:
    """The results of all checks."""

    extras: list[Extra]
    store: StoreCheck
    endpoints: list[CheckedEndpoint]
    plugins: dict[str, list[PluginEntry]] = field(default_factory=dict)
    """The names of each group. An unusable plug-in is listed, and affects only its own name."""

    @property
    def well(self) -> bool:
        return self.store.well and all(each.works for each in self.endpoints)

    def lines(self) -> list[str]:
        """Return the report as text; `plain` has the same content."""
        lines = [
            format_field("python", f"{platform.python_version()} on {platform.system()}"),
            format_field("assay", __version__),
        ]
        for name in dict.fromkeys(extra.name for extra in self.extras):
            needed = [extra for extra in self.extras if extra.name == name]
            words = ", ".join(f"{each.package} {each.version}" for each in needed)
            if missing := ", ".join(each.package for each in needed if each.version is None):
                words = f"not installed: {install_command(name)} adds {missing}"
            lines += format_wrapped(f"[{name}]", words)
        for group, entries in self.plugins.items():
            own = ", ".join(entry.name for entry in entries if entry.origin == "assay")
            lines += format_wrapped(_GROUP_LABELS.get(group, group), f"{own} (assay)")
            for entry in entries:
                if entry.origin != "assay":
                    problem = "" if entry.error is None else f" is unusable: {entry.error}"
                    text = f"{entry.name} ({entry.origin}){problem}"
                    lines += format_wrapped("", sanitize_to_line(text))
        lines.append(format_field("store", self.store.where))
        lines += format_wrapped("", sanitize_to_line(self.store.words))
        for each in self.endpoints:
            reason = f" (by {each.found_by})" if each.found_by else ""
            took = "" if each.latency_s is None else f" in {each.latency_s:.2f} s"
            notes = [f"{each.verdict}{took}: {each.detail}"]
            notes += [] if each.proxy is None else [f"through the proxy {each.proxy}"]
            notes += [f"hint: {each.hint}"] if each.hint else []
            lines.append(format_field("endpoint", f"{sanitize_to_line(each.endpoint)}{reason}"))
            for note in notes:
                lines += format_wrapped("", sanitize_to_line(note))
        if not self.endpoints:
            text = "none checked: pass --model, or set a provider's key"
            lines += format_wrapped("endpoints", text)
        return lines

    def plain(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "python": platform.python_version(),
            "assay": __version__,
            **asdict(self),
            "well": self.well,
        }
