"""Versions of the agents that recorded sessions, compared with the newest one tested."""

import re

_RELEASE = re.compile(r"v?(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?(?![\d.])")


def is_tested(version: str, *, newest: str) -> bool:
    """Whether `version` is a release that is not newer than `newest`.

    Development builds, which agents number 0.0.0 or not at all, are not.
    """
    release = _parse_release(version)
    tested = _parse_release(newest)
    if release is None or tested is None or not any(release):
        return False
    return release <= tested


def _parse_release(version: str) -> tuple[int, ...] | None:
    found = _RELEASE.match(version)
    return None if found is None else tuple(int(part or 0) for part in found.groups())
