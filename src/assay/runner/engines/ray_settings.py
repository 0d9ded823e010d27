"""The settings of a run on Ray. Needs no Ray."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from assay.errors import ConfigError
from assay.store import Store


@dataclass(frozen=True)
class ShippedCode:
    """The files that a worker needs to import the user's code."""

    files: Mapping[str, Path]
    """By their path in the project."""

    import_folders: tuple[str, ...] = (".",)
    """Folders of the project that modules are imported from."""

    folder: str = "."
    """The folder of the project in which the code is run."""

    scripts: tuple[str, ...] = ()
    """Files that are imported first, such as the evaluation file."""


@dataclass(frozen=True)
class RaySettings:
    """Which Ray cluster executes the rollouts of a run, and with how many workers."""

    address: str | None = None
    """`HOST:PORT` of the head node. None starts a cluster on this machine, on loopback, which ends
    with the run."""

    workers: int | None = None
    """Worker processes, each on a CPU of its own. None: one for each CPU of the cluster."""

    variables: tuple[str, ...] = ()
    """Environment variables that workers are given, beside those with the keys of providers."""

    code: ShippedCode | None = field(default=None, repr=False)
    """None: the files of the current folder that are loaded."""

    def __post_init__(self) -> None:
        if self.workers is not None and not (type(self.workers) is int and self.workers >= 1):
            raise ConfigError(
                f"workers={self.workers!r} is not a number above 0", where="RaySettings"
            )
        if self.address is not None:
            split_address(self.address)


EngineRef = RaySettings | Literal["ray"]
"""The settings of an engine, or its name for the default settings."""


def read_engine(given: EngineRef | None, *, where: str) -> RaySettings | None:
    """Return the settings of an engine. Raises `ConfigError` for an unknown one."""
    found = RaySettings() if given == "ray" else given
    if not isinstance(found, RaySettings | None):
        raise ConfigError(
            f"engine={found!r} is unknown",
            where=where,
            hint="pass 'ray' or RaySettings(...), or omit it to run in this process",
        )
    return found


def split_address(address: str) -> tuple[str, int]:
    """Split `HOST:PORT`. Raises `ConfigError` for any other form."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(
            f"{address!r} is not the address of a Ray cluster",
            where="RaySettings",
            hint="write HOST:PORT of the head node, such as 10.0.0.5:6379",
        )
    return host.strip("[]"), int(port)


def refuse_file_store(store: Store | str | Path | None) -> None:
    """Raise `ConfigError` if the store is a file, which workers of other machines cannot write."""
    location = store.url if isinstance(store, Store) else store
    if isinstance(location, str) and location.startswith("postgres"):
        return
    raise ConfigError(
        "Ray workers cannot record into a SQLite file: they may run on other machines, and a file "
        "on a shared disk has no reliable locks",
        where="engine='ray'",
        hint="pass a PostgreSQL store: store='postgresql://...', on the command line --store",
    )
