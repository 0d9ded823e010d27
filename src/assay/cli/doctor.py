"""`assay doctor`: what is installed, whether the store opens, and which endpoints answer."""

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
from assay.stats import labelled
from assay.store import Store
from assay.types import Endpoint

from .eval_overrides import (
    add_key_option,
    add_plain_http_option,
    allow_plain_http,
    with_key,
)
from .exit_status import COULD_NOT_TELL, YES
from .resume import without_secrets
from .store_option import add_store_option, open_store, store_location
from .terminal import plain, plain_lines, print_json

_REQUIREMENT = re.compile(r"""(?P<package>[\w.-]+).*;.*extra\s*==\s*['"](?P<extra>[\w-]+)['"]""")
_NOT_FOR_USERS = frozenset({"dev"})
_LABEL = 14


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="PROVIDER:MODEL[@URL]",
        help="ask this endpoint for its models; may be given more than once",
    )
    add_key_option(parser)
    add_plain_http_option(parser)
    add_store_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def main(args: Namespace) -> int:
    """Exit status: 0 all is well, 3 the store or an endpoint that was asked does not answer."""
    asked = [
        replace(each, endpoint=allow_plain_http(each.endpoint, args))
        for each in (*asked_for(args.model, args), *found_by_key(os.environ))
    ]
    findings = Findings(
        extras=list(installed_extras(_requirements())),
        store=checked_store(args),
        endpoints=asyncio.run(checked(asked)),
    )
    if args.json:
        print_json(findings.plain())
    else:
        print(plain_lines("\n".join(findings.lines())))
    return YES if findings.well else COULD_NOT_TELL


@dataclass(frozen=True)
class Extra:
    """A package that an extra needs, and which version of it is there."""

    name: str
    package: str
    version: str | None


@dataclass(frozen=True)
class StoreFinding:
    """What became of opening the store."""

    where: str
    words: str
    well: bool


@dataclass(frozen=True)
class Asked:
    """An endpoint to check, and why."""

    name: str
    endpoint: Endpoint
    by_key: str | None = None
    """The variable whose key it was found by. Then no model was asked for."""


def installed_extras(requirements: Iterable[str]) -> Iterator[Extra]:
    """The extras that users install, from the package's own requirements."""
    for requirement in requirements:
        match = _REQUIREMENT.match(requirement)
        if match is not None and match["extra"] not in _NOT_FOR_USERS:
            yield Extra(match["extra"], match["package"], _version(match["package"]))


def _requirements() -> list[str]:
    try:
        return requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return []  # run from its source, without being installed


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def checked_store(args: Namespace) -> StoreFinding:
    """Whether the store opens. That there is none yet is no fault."""
    place = store_location(args)
    where = ".assay/assay.db" if place is None else without_secrets(str(place))
    if "://" not in where and not _is_there(Path(where)):
        return StoreFinding(where, "none here yet; `assay eval` makes one", well=True)
    try:
        with open_store(args) as store:
            return StoreFinding(store.where, _newest(store), well=True)
    except AssayError as error:
        return StoreFinding(where, error.message, well=False)


def _is_there(path: Path) -> bool:
    inside = (path / "assay.db", path / ".assay" / "assay.db")
    return any(each.exists() for each in inside) if path.is_dir() else path.exists()


def _newest(store: Store) -> str:
    newest = store.runs(limit=1)
    return f"opens; its newest run is {newest[0].id}" if newest else "opens; it has no runs"


def asked_for(models: list[str], args: Namespace | None = None) -> Iterator[Asked]:
    """The endpoints of `--model`. Raises `ConfigError` for a string that is none."""
    for text in models:
        yield Asked(without_secrets(text), with_key(parse_model(text), args or Namespace()))


def found_by_key(environment: Mapping[str, str]) -> Iterator[Asked]:
    """An endpoint for each provider whose key is in the environment."""
    for name, provider in PROVIDERS.items():
        variable = provider.key_variable
        if variable is not None and environment.get(variable, "").strip():
            yield Asked(name, Endpoint(provider=name, model="any"), by_key=variable)


async def checked(asked: list[Asked]) -> list[tuple[Asked, EndpointCheck]]:
    """Ask all of them at once."""
    checks = await asyncio.gather(*(check_endpoint(each.endpoint) for each in asked))
    return list(zip(asked, checks, strict=True))


@dataclass(frozen=True)
class Findings:
    """Everything that was looked at."""

    extras: list[Extra]
    store: StoreFinding
    endpoints: list[tuple[Asked, EndpointCheck]]

    @property
    def well(self) -> bool:
        return self.store.well and all(_works(*each) for each in self.endpoints)

    def lines(self) -> list[str]:
        lines = [
            f"{'python':<{_LABEL}}{platform.python_version()} on {platform.system()}",
            f"{'assay':<{_LABEL}}{__version__}",
            *_extra_lines(self.extras),
            f"{'store':<{_LABEL}}{self.store.where}",
            *labelled("", plain(self.store.words)),
        ]
        for asked, check in self.endpoints:
            lines += _endpoint_lines(asked, check)
        if not self.endpoints:
            lines += labelled("endpoints", "none asked: give --model, or set a provider's key")
        return lines

    def plain(self) -> dict[str, Any]:
        return {
            "python": platform.python_version(),
            "assay": __version__,
            "extras": [asdict(each) for each in self.extras],
            "store": asdict(self.store),
            "endpoints": [_endpoint_plain(*each) for each in self.endpoints],
            "well": self.well,
        }


def _extra_lines(extras: list[Extra]) -> Iterator[str]:
    """For each extra the versions that are there, or what is missing of it."""
    for name in dict.fromkeys(extra.name for extra in extras):
        needed = [extra for extra in extras if extra.name == name]
        words = ", ".join(f"{each.package} {each.version}" for each in needed)
        if missing := ", ".join(each.package for each in needed if each.version is None):
            words = f"not installed: {install_command(name)} brings {missing}"
        yield from labelled(f"[{name}]", words)


def _works(asked: Asked, check: EndpointCheck) -> bool:
    return check.verdict == "answers" and (asked.by_key is not None or check.has_model is not False)


def _endpoint_lines(asked: Asked, check: EndpointCheck) -> Iterator[str]:
    reason = f" (by {asked.by_key})" if asked.by_key else ""
    took = "" if check.latency_s is None else f" in {check.latency_s:.2f} s"
    yield f"{'endpoint':<{_LABEL}}{plain(asked.name)}{reason}"
    yield from labelled("", f"{check.verdict}{took}: {plain(check.detail)}")
    if check.proxy is not None:
        yield from labelled("", f"through the proxy {plain(check.proxy)}")
    if hint := _hint(asked, check):
        yield from labelled("", f"hint: {plain(hint)}")


def _hint(asked: Asked, check: EndpointCheck) -> str | None:
    # Found by its key, it was asked for no model that could be missing.
    return None if asked.by_key is not None and check.verdict == "answers" else check.hint


def _endpoint_plain(asked: Asked, check: EndpointCheck) -> dict[str, Any]:
    return {
        "endpoint": asked.name,
        "found_by": asked.by_key,
        "verdict": check.verdict,
        "works": _works(asked, check),
        "detail": check.detail,
        "hint": _hint(asked, check),
        "latency_s": check.latency_s,
        "proxy": check.proxy,
        "models": None if check.models is None else list(check.models),
    }
