"""The packages that every training needs beyond those of assay itself."""

from importlib.util import find_spec

from assay.errors import MissingExtra


def check_training_packages() -> None:
    """Raise `MissingExtra` when one is not there. Imports none of them."""
    for package in ("torch", "transformers", "jinja2"):
        if find_spec(package) is None:
            raise MissingExtra.needed("train", by="training", package=package)
