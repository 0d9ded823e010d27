"""Field types that tolerate the irregularities of foreign data."""

import re
from typing import Annotated, Any, cast, get_origin

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def replace_lone_surrogates(text: str) -> str:
    """Return `text` with lone surrogates replaced by U+FFFD, so that it encodes as UTF-8."""
    return _LONE_SURROGATE.sub("\ufffd", text)


class _WellFormedText:
    """Accepts lone surrogates, which truncated model output contains and plain `str` refuses."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        # A length constraint, even `min_length=0`, makes pydantic inspect a Python string, so that
        # the first member refuses surrogates. The second runs only then, so it costs nothing on
        # the usual path.
        return core_schema.union_schema(
            [
                core_schema.str_schema(min_length=0),
                core_schema.no_info_after_validator_function(
                    replace_lone_surrogates, core_schema.str_schema()
                ),
            ],
            mode="left_to_right",
            custom_error_type="string_type",
            serialization=core_schema.simple_ser_schema("str"),
        )


class SerializeByValue:
    """Serializes a union by the value's own type instead of trying each member."""

    # Trying members converts a value to Python objects first and those to JSON, which is slow.

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        written = {"serialization": core_schema.simple_ser_schema("any")}
        return cast(CoreSchema, {**handler(source), **written})


class NullToEmpty:
    """Reads `null` as the empty value of the field's own container type."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        empty = get_origin(source)

        def replace_null(value: Any) -> Any:
            return empty() if value is None else value

        return core_schema.no_info_after_validator_function(
            replace_null, core_schema.nullable_schema(handler(source))
        )


Text = Annotated[str, _WellFormedText]
