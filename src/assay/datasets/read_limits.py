"""Limits on the resources that reading a dataset may use."""

from dataclasses import dataclass, fields

from assay.errors import ConfigError


@dataclass(frozen=True)
class ReadLimits:
    """Limits for untrusted datasets. Each error names the limit that was exceeded."""

    max_row_bytes: int = 32 * 1024 * 1024
    """The longest line, array element or table cell."""

    max_depth: int = 100
    """The maximum nesting of objects and arrays. At most 200."""

    max_expansion: int = 200
    """The maximum compression ratio, checked after 16 MiB of output."""

    max_expanded_bytes: int = 64 * 1024**3
    """The maximum size of a decompressed file."""

    max_problems: int = 20
    """The number of skipped rows that are described; all of them are counted."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            # No described problems is a valid choice; every other limit must be positive.
            lowest = 0 if field.name == "max_problems" else 1
            if type(value) is not int or value < lowest:
                raise ConfigError(
                    f"{field.name}={value!r} is not a whole number of at least {lowest}",
                    where="ReadLimits",
                )
        # The JSON parser has a fixed recursion limit a little above 200.
        if self.max_depth > 200:
            raise ConfigError(f"max_depth={self.max_depth} is over 200", where="ReadLimits")
