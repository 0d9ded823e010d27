"""Plug-ins of installed packages: found by name through entry points, and loaded when requested.

Names of assay itself are looked up first, by the unit that has them. Nothing is read from the
installed packages until a name is requested that assay does not have.
"""

import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from assay.errors import AssayError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from importlib.metadata import EntryPoint

PluginGroup = Literal[
    "assay.providers",
    "assay.agents",
    "assay.environments",
    "assay.scorers",
    "assay.check_rules",
    "assay.session_sources",
    "assay.export_formats",
    "assay.evals",
    "assay.metric_sinks",
]
"""The groups of entry points that assay reads."""


@dataclass(frozen=True)
class Plugin:
    """An object that an installed package registers under a name."""

    group: PluginGroup
    name: str
    value: object
    origin: str
    """The distribution and its version."""

    def build_error(self, problem: str) -> ConfigError:
        """Return the error for a plug-in that cannot be used."""
        return ConfigError(
            f"{problem}; it is registered by {self.origin}",
            where=f"{self.group}: {self.name}",
            hint=f"fix or uninstall {self.origin}; `assay doctor` lists all plug-ins",
        )


@dataclass(frozen=True)
class PluginEntry:
    """A name in a group, as `assay doctor` lists it."""

    name: str
    origin: str
    """`assay`, or the distribution and its version."""

    error: str | None = None
    """Why the plug-in cannot be used. None: it can."""


def find_plugin(group: PluginGroup, name: str) -> Plugin | None:
    """Load the plug-in of a name; None if no installed package registers it.

    Raises `ConfigError` if its import fails, and if two packages register the name.
    """
    entries = [entry for entry in _find_group_entries(group) if entry.name == name]
    if not entries:
        return None
    where = f"{group}: {name}"
    if len(entries) > 1:
        origins = " and ".join(_format_origin(entry) for entry in entries)
        raise ConfigError(
            f"the name {name!r} is registered by {origins}",
            where=where,
            hint="uninstall one of them, or pass the object itself instead of its name",
        )
    entry, origin = entries[0], _format_origin(entries[0])
    try:
        return Plugin(group, name, entry.load(), origin)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # `BaseException`: a module may call sys.exit() when it is imported.
        raise ConfigError(
            f"the entry point `{name} = {entry.value}` of {origin} cannot be imported: "
            f"{type(error).__name__}: {error}",
            where=where,
            hint=f"fix or uninstall {origin}",
        ) from error


def list_plugin_names(group: PluginGroup) -> list[str]:
    """Return the names that installed packages register, without importing anything."""
    return list(dict.fromkeys(entry.name for entry in _find_group_entries(group)))


def list_names(group: PluginGroup, own_names: "Iterable[str]") -> list[str]:
    """Return the names of assay and of installed packages, for messages."""
    return list(dict.fromkeys([*own_names, *list_plugin_names(group)]))


def list_plugins(
    group: PluginGroup, own_names: "Collection[str]", load: "Callable[[str], object]"
) -> list[PluginEntry]:
    """List the names of a group: those of assay, then those of installed packages.

    `load` returns the object of a name, or raises `AssayError`, which makes the plug-in unusable.
    """
    listed = [PluginEntry(name, "assay") for name in own_names]
    for entry in _find_group_entries(group):
        problem: str | None = None
        if entry.name in own_names:
            # Never loaded: a package must not change the meaning of a name that assay documents.
            problem = f"the name {entry.name!r} belongs to assay; the package must choose another"
        else:
            try:
                load(entry.name)
            except AssayError as error:
                problem = error.message
        listed.append(PluginEntry(entry.name, _format_origin(entry), problem))
    return listed


def _find_group_entries(group: PluginGroup) -> "tuple[EntryPoint, ...]":
    # Code of users adds folders to the import path, and these may contain packages.
    return _read_entry_points(group, tuple(sys.path))


@lru_cache(maxsize=64)
def _read_entry_points(group: PluginGroup, path: tuple[str, ...]) -> "tuple[EntryPoint, ...]":
    # Imported here: it takes longer than everything else that `import assay` loads.
    from importlib.metadata import entry_points

    return tuple(entry_points(group=group))


def _format_origin(entry: "EntryPoint") -> str:
    if entry.dist is None:
        return "an unknown package"
    # A damaged installation may lack the file with both.
    metadata = entry.dist.metadata
    name = metadata["Name"] if "Name" in metadata else ""  # noqa: SIM401  # it has no `get`
    version = metadata["Version"] if "Version" in metadata else ""  # noqa: SIM401  # as above
    return f"{name or 'an unnamed package'} {version}".rstrip()
