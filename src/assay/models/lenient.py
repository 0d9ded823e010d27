"""Field types that accept what foreign data really contains."""

import re
from typing import Annotated, Any, get_origin

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def well_formed(text: str) -> str:
    """`text` with each lone surrogate replaced by U+FFFD, so that it can be written as UTF-8."""
    return _LONE_SURROGATE.sub("\ufffd", text)


class _WellFormed:
    """Accepts what plain `str` refuses: half an emoji, as a cut-off model output contains it."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        # The second arm costs nothing on the usual path: it runs only when `str` said no.
        return core_schema.union_schema(
            [handler(source), core_schema.no_info_plain_validator_function(_repair)],
            mode="left_to_right",
            serialization=core_schema.simple_ser_schema("str"),
        )


def _repair(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("not a string")
    return well_formed(value)


class NullIsEmpty:
    """Reads `null` as the empty value of the field's own container type."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        empty = get_origin(source)

        def emptied(_: None) -> Any:
            return empty()

        null = core_schema.no_info_after_validator_function(emptied, core_schema.none_schema())
        return core_schema.union_schema([handler(source), null], mode="left_to_right")


Text = Annotated[str, _WellFormed]
