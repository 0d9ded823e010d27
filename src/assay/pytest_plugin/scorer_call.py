"""The user's function, bound to its fixtures."""

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, get_args, get_type_hints

import pytest

from assay.errors import ScorerFault
from assay.scorers import CallSpec, read_call_spec
from assay.types import Sample

from .assertions import FailedAssertions
from .collection import find_receiver_kind
from .decorator import ENDPOINT_ARGUMENT, EvalOptions

_SAMPLE_LIST_NAMES = frozenset({"rows", "samples"})


@dataclass(frozen=True)
class UserFunction:
    """Calls the function of a test with the arguments that it names."""

    function: Callable[..., Any]
    takes: CallSpec
    fixtures: Mapping[str, Any]
    takes_endpoints: bool = False
    """Whether the function takes `endpoints`: the endpoint of each sample of a group."""

    assertions: FailedAssertions = field(default_factory=FailedAssertions)

    def score_sample(self, sample: Sample) -> object:
        """Call the function for one sample; an async one returns an awaitable.

        A failed assertion is a result of 0.0.
        """
        try:
            returned = self._call(self.takes.of(sample))
        except AssertionError as error:
            return self.assertions.add(format_result_name(sample), error)
        return self._await_result(returned, sample) if inspect.isawaitable(returned) else returned

    async def _await_result(
        self, returned: Awaitable[object], sample: Sample | None = None
    ) -> object:
        try:
            with _convert_to_faults(self.assertions):
                return await returned
        except AssertionError as error:
            if sample is None:
                raise
            return self.assertions.add(format_result_name(sample), error)

    def score_group(self, samples: Sequence[Sample], endpoints: Sequence[str | None]) -> object:
        """Call the function for several samples: each parameter gets a list.

        Raises the `AssertionError` of a failed assertion, which concerns all of them.
        """
        values = self.takes.lists(samples)
        if self.takes_endpoints:
            values["endpoints"] = list(endpoints)
        returned = self._call(values)
        return self._await_result(returned) if inspect.isawaitable(returned) else returned

    def _call(self, values: dict[str, object]) -> object:
        with _convert_to_faults(self.assertions):
            return self.function(**{**values, **self.fixtures})


@contextmanager
def _convert_to_faults(assertions: FailedAssertions) -> Iterator[None]:
    # `pytest.fail()` and `sys.exit()` raise BaseExceptions, which would end all other samples.
    try:
        yield
    except Exception as error:
        assertions.note(error)
        raise
    except (pytest.fail.Exception, pytest.skip.Exception, SystemExit) as error:
        if not isinstance(error, pytest.skip.Exception):
            assertions.note(error)  # raised again for a debugger, a skip would skip the test
        raise ScorerFault(f"the function ended with {type(error).__name__}: {error}") from error


def bind_user_function(item: "pytest.Function", options: EvalOptions) -> UserFunction:
    """Bind the function of a test to its instance and its fixtures."""
    function, signature = options.function, options.signature
    kind = find_receiver_kind(item.cls, item.originalname)
    if kind is not None:
        function = function.__get__(item.cls if kind == "class" else item.instance)
        signature = signature.replace(parameters=list(signature.parameters.values())[1:])
    names = [name for name in item._fixtureinfo.argnames if name != ENDPOINT_ARGUMENT]
    fixtures = {name: item.funcargs[name] for name in names}
    tells = options.groupwise and "endpoints" in signature.parameters
    given = (*names, "endpoints") if tells else names
    # Fixtures win over fields of the row with the same name.
    takes = read_call_spec(function, given=given, signature=signature)
    if options.takes_lists:
        try:
            hints = get_type_hints(function)
        except (NameError, TypeError, AttributeError):
            hints = {}  # names under `if TYPE_CHECKING` cannot be resolved
        # A list of whole samples is recognised by its annotation, or by the usual names.
        listed = {name for name in takes.names if get_args(hints.get(name))[:1] == (Sample,)}
        listed |= _SAMPLE_LIST_NAMES & set(takes.names)
        takes = replace(takes, samples=takes.samples | listed)
    assertions = FailedAssertions(keep_error=bool(item.config.getoption("usepdb")))
    return UserFunction(function, replace(takes, where=item.name), fixtures, tells, assertions)


def format_result_name(sample: Sample) -> str:
    """Return the name of a result for `assay show`, with the number of its repeat if any."""
    rollout = sample.rollout_id or ""
    return rollout if rollout.startswith(f"{sample.id}#") else sample.id
