"""Errors say what happened, where and what to do, and survive the way between processes."""

import pickle

import pytest

from assay import errors
from assay.errors import AssayError, ConfigError, EndpointError, MissingExtra


def test_an_error_reads_as_what_where_and_what_to_do() -> None:
    error = ConfigError("repeats=0 is not a number above 0", where="EvalConfig", hint="use 1")

    assert str(error) == "EvalConfig: repeats=0 is not a number above 0\n  hint: use 1"
    assert str(ConfigError("only what")) == "only what"


def test_every_error_is_an_assay_error() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]

    assert len(kinds) > 8
    assert all(issubclass(kind, AssayError) for kind in kinds)


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("what", where="where", hint="do"),
        MissingExtra.build("hf", by="reading a folder", package="datasets"),
        EndpointError("busy", where="mock", status=429, retryable=True),
        errors.AccessDenied("no", status=401, retryable=False),
    ],
)
def test_an_error_comes_back_whole_from_another_process(error: AssayError) -> None:
    back = pickle.loads(pickle.dumps(error))

    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back) == vars(error)


def test_a_missing_extra_says_what_to_install() -> None:
    error = MissingExtra.build("hf", by="reading a dataset folder", package="datasets")

    assert str(error) == (
        "reading a dataset folder needs the package `datasets`\n"
        "  hint: pip install 'assay-eval[hf]'"
    )


def test_what_no_extra_brings_is_installed_after_it() -> None:
    error = MissingExtra.build("gguf", by="local:x", package="x", then="pip install --no-deps x")

    assert error.hint == "pip install 'assay-eval[gguf]' && pip install --no-deps x"
