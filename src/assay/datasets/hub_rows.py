"""Hugging Face datasets by name or from a local folder. The code of a dataset is never run."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

from assay.errors import BadRow, ConfigError, DatasetError

from .read_limits import ReadLimits
from .rows import RowOutcome, check_row

# `save_to_disk` writes one of these into its folder.
_SAVED_FILES = ("state.json", "dataset_dict.json")


@dataclass(frozen=True)
class HubRows:
    """The rows of one split, numbered from 0."""

    source: Path | str
    """A folder, or a name such as `org/name`, or `org/name:subset`."""

    split: str | None
    limits: ReadLimits
    has_typed_values: ClassVar[bool] = True

    def where(self, position: int) -> str:
        return f"{self.source}[{position}]"

    def __iter__(self) -> Iterator[tuple[int, RowOutcome]]:
        rows = iter(self._select_split(self._load()))
        for position in count():
            where = self.where(position)
            try:
                row = next(rows, None)
            except Exception as error:
                raise DatasetError(
                    f"the row cannot be read: {type(error).__name__}: {error}", where=where
                ) from error
            if row is None:
                return
            if isinstance(row, Mapping):
                yield position, check_row(dict(row), where=where, max_depth=self.limits.max_depth)
            else:
                yield (
                    position,
                    BadRow(f"the row is a {type(row).__name__}, not a dict", where=where),
                )

    def _load(self) -> Any:
        from datasets import load_dataset, load_from_disk

        try:
            if self._is_saved:
                return load_from_disk(str(self.source))
            if isinstance(self.source, Path):
                # Absolute: `load_dataset` takes a folder named `json` or `csv` for a format.
                name, subset = str(self.source.absolute()), ""
            else:
                name, _, subset = self.source.partition(":")
            return load_dataset(
                name, subset or None, split=self.split, streaming=True, trust_remote_code=False
            )
        # The library lets through any exception of its file systems and parsers.
        except Exception as error:
            cause = f"{type(error).__name__}: {' '.join(str(error).split())}"
            message = f"the folder cannot be loaded: {cause}"
            hint = "the folder must contain data files, or be written by save_to_disk"
            if not isinstance(self.source, Path):
                message = (
                    "no file or folder has this name, and loading it as a hub dataset failed: "
                    f"{cause}"
                )
                hint = "check the path; a hub dataset needs its exact name and the network"
            raise DatasetError(message, where=str(self.source), hint=hint) from error

    @property
    def _is_saved(self) -> bool:
        folder = self.source
        return isinstance(folder, Path) and any((folder / name).exists() for name in _SAVED_FILES)

    def _select_split(self, opened: Any) -> Iterable[Any]:
        """Return the requested split, or the only one."""
        if isinstance(opened, Mapping):
            splits = dict(opened)
        elif self.split is None or not self._is_saved:
            # `load_dataset` has already selected the split.
            return opened  # type: ignore[no-any-return]  # the library is untyped
        else:
            splits = {} if opened.split is None else {str(opened.split): opened}
        wanted = self.split or (next(iter(splits)) if len(splits) == 1 else None)
        if wanted in splits:
            return splits[wanted]  # type: ignore[no-any-return]  # the library is untyped
        names = ", ".join(repr(name) for name in splits)
        problem = "has several splits" if self.split is None else f"has no split {self.split!r}"
        hint = f"pass split=, one of {names}" if splits else "omit split=: it has one unnamed split"
        raise ConfigError(f"the dataset {problem}", where=str(self.source), hint=hint)
