"""The pytest face. Every session of anyone who installed assay loads this module.

It therefore imports the standard library only; the work is imported when an evaluation runs.
"""

# Not imported from `typing`: see the module docstring.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import pytest

__all__ = ["pytest_configure"]


def pytest_configure(config: "pytest.Config") -> None:
    """Register the marker that tells evaluations from other tests."""
    config.addinivalue_line("markers", "evaluation: a test that scores samples")
