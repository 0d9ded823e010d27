"""The metadata of a sample, accessible by key or by attribute."""

from typing import Any

_OPTIONAL_KEYS = frozenset({"row_id", "dataset_info", "session_data"})


class InputMetadata(dict[str, Any]):
    """A dictionary whose keys are attributes too: `InputMetadata(row_id="a").row_id`.

    `row_id`, `dataset_info` and `session_data` are None, and `completion_params` is empty, where
    they are missing.
    """

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        if name in _OPTIONAL_KEYS:
            return None
        if name == "completion_params":
            # Stored, so that `metadata.completion_params["model"] = ...` takes effect.
            return self.setdefault(name, {})
        raise AttributeError(f"the metadata has no {name!r}; it has {sorted(self)}")

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(f"the metadata has no {name!r}") from None
