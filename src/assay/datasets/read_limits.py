"""How much of a dataset is believed before reading stops."""

from dataclasses import dataclass, fields

from assay.errors import ConfigError


@dataclass(frozen=True)
class ReadLimits:
    """Bounds on what a dataset may ask of this machine. Each error names the bound it met."""

    max_row_bytes: int = 32 * 1024 * 1024
    """The longest line, array element or table cell."""

    max_depth: int = 100
    """How many objects and arrays may stand inside each other. At most 200."""

    max_expansion: int = 200
    """How many bytes one compressed byte may become, once 16 MiB have come out."""

    max_expanded_bytes: int = 64 * 1024**3
    """How many bytes may come out of one compressed file."""

    max_problems: int = 20
    """How many skipped rows are described; all of them are counted."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            lowest = 0 if field.name == "max_problems" else 1
            if type(value) is not int or value < lowest:
                raise ConfigError(
                    f"{field.name}={value!r} is not a whole number of at least {lowest}",
                    where="ReadLimits",
                )
        # The JSON parser itself gives up a little above 200.
        if self.max_depth > 200:
            raise ConfigError(f"max_depth={self.max_depth} is over 200", where="ReadLimits")
