"""Which versions of an agent count as tested."""

import pytest

from assay.sessions.session_reading import is_tested


@pytest.mark.parametrize(
    "version", ["1.18.33", "1.18.4", "0.1.174", "v1.2.0", "1.18", "1.18.33-rc.1"]
)
def test_releases_up_to_the_newest_tested_are_tested(version: str) -> None:
    assert is_tested(version, newest="1.18.33")


@pytest.mark.parametrize("version", ["1.18.34", "1.19.0", "2.0", "1.100.0", "99.0.0-beta"])
def test_newer_releases_are_not(version: str) -> None:
    assert not is_tested(version, newest="1.18.33")


@pytest.mark.parametrize("version", ["", "dev", "local", "0.0.0-main-202611161200", "1", "1.2.3.4"])
def test_builds_without_a_release_number_are_not(version: str) -> None:
    assert not is_tested(version, newest="1.18.33")
