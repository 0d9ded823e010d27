"""What pytest sees while it collects."""

import pytest

from assay.pytest_plugin.collection import find_receiver_kind, name_endpoints
from assay.types import Endpoint


class Methods:
    def test_instance(self) -> None: ...

    @classmethod
    def test_class(cls) -> None: ...

    @staticmethod
    def test_static() -> None: ...


def test_endpoints_are_named_and_no_two_alike() -> None:
    whole = Endpoint(provider="mock", model="echo")

    assert name_endpoints([whole, "openai:gpt-5", "mock:echo", whole]) == [
        "mock:echo",
        "openai:gpt-5",
        "mock:echo#2",
        "mock:echo#3",
    ]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("test_instance", "instance"), ("test_class", "class"), ("test_static", None)],
)
def test_the_first_parameter_of_a_method_is_known(name: str, kind: str | None) -> None:
    assert find_receiver_kind(Methods, name) == kind
    assert find_receiver_kind(None, name) is None
