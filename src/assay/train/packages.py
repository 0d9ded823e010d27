"""The packages that every training needs besides assay's own dependencies."""

from importlib.util import find_spec

from assay.errors import MissingExtra


def check_training_packages() -> None:
    """Raise `MissingExtra` when one is missing. Imports none of them."""
    for package in ("torch", "transformers", "jinja2"):
        if find_spec(package) is None:
            raise MissingExtra.build("train", by="training", package=package)
