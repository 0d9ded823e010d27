"""Compare the version of an agent with the newest tested one."""

import re

# Bounded digits: versions come from files, and int() raises for very long numbers.
_RELEASE = re.compile(r"v?(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?(?![\d.])")


def is_tested(version: str, *, newest: str) -> bool:
    """Whether `version` is a release up to `newest`.

    False for development builds, which have the number 0.0.0 or none.
    """
    release = _parse_release(version)
    tested = _parse_release(newest)
    if release is None or tested is None or not any(release):
        return False
    return release <= tested


def _parse_release(version: str) -> tuple[int, ...] | None:
    found = _RELEASE.match(version)
    return None if found is None else tuple(int(part or 0) for part in found.groups())
