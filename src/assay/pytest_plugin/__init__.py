"""The pytest plugin. pytest loads this module in every environment that has assay installed.

It therefore imports the standard library only; the work is imported when an evaluation runs.
"""

import os
import time
from itertools import pairwise

from .decorator import ENDPOINT_ARGUMENT, eval_options_of, evaluation_test, is_async

# Not imported from `typing`: see the module docstring.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    import pytest

    from .session_report import Evaluations

__all__ = ["evaluation_test"]

DEFAULT_SUMMARY = ".assay/summary.json"


def pytest_addoption(parser: "pytest.Parser") -> None:
    """Declare the options that concern all evaluations of a session."""
    group = parser.getgroup("assay", "evaluations")
    group.addoption(
        "--assay-summary",
        metavar="PATH",
        default=DEFAULT_SUMMARY,
        help=f"Write the summary of all evaluations to PATH (default: {DEFAULT_SUMMARY})",
    )
    group.addoption(
        "--assay-html",
        metavar="PATH",
        help="Write the runs and samples of all evaluations as one HTML file to PATH",
    )
    group.addoption(
        "--assay-baseline",
        metavar="PATH",
        help="Fail every evaluation that is worse than in this earlier summary",
    )
    group.addoption(
        "--assay-tolerance",
        type=float,
        metavar="X",
        help="Allow a mean to fall by X below --assay-baseline (default: fail on a drop that is "
        "statistically significant)",
    )
    group.addoption(
        "--assay-update-baseline",
        action="store_true",
        help="Write this session's summary to --assay-baseline instead of comparing with it",
    )
    group.addoption(
        "--assay-store", metavar="PATH|URL", help="Record runs here (default: .assay/assay.db)"
    )
    group.addoption(
        "--assay-max-samples", type=int, metavar="N", help="Evaluate at most N samples of each test"
    )
    group.addoption(
        "--assay-fail-on-error",
        nargs="?",
        const="true",
        metavar="X",
        help="Stop an evaluation when a sample fails; with X, when more samples fail than this "
        "share (0.1) or count (5)",
    )
    group.addoption(
        "--assay-max-cost-usd",
        type=float,
        metavar="USD",
        help="Start no further samples of an evaluation once it has cost this much",
    )
    group.addoption("--assay-model", metavar="NAME", help="Use this model in every evaluation")
    group.addoption(
        "--assay-replay",
        metavar="PATH",
        help="Answer the model calls of every evaluation from this recording, or from TEST.jsonl "
        "in this folder",
    )
    group.addoption(
        "--assay-rows",
        metavar="PATH",
        help="Read the samples of every test from the dataset.jsonl of a bundle",
    )


def pytest_load_initial_conftests(
    early_config: "pytest.Config", args: "list[str]"
) -> "Generator[None, object, object]":
    """Undo the effect of `--assay-baseline FILE` and its like on pytest's root folder."""
    # Written as one word (`--assay-baseline=FILE`), an option has no such effect.
    pairs = [pair for pair in pairwise(args) if pair[0].startswith("--assay-")]
    if apart := [name for name, value in pairs if "=" not in name and value[:1] != "-"]:
        from .root_folder import restore_root

        restore_root(early_config, apart)
    return (yield)


def pytest_configure(config: "pytest.Config") -> None:
    """Register the marker of evaluations, and check the options."""
    config.addinivalue_line("markers", "evaluation: a test that scores samples")
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        config._assay_session = worker["assay_session"]  # type: ignore[attr-defined]  # ours
        return
    config._assay_session = f"{os.getpid()}-{time.time_ns()}"  # type: ignore[attr-defined]  # ours
    checked = (
        *(
            "--assay-baseline",
            "--assay-tolerance",
            "--assay-update-baseline",
            "--assay-max-samples",
        ),
        *("--assay-fail-on-error", "--assay-max-cost-usd", "--assay-replay", "--assay-rows"),
        "--assay-html",
    )
    # Without any of these options nothing can be wrong, and nothing more is imported.
    changed = config.getoption("--assay-summary") != DEFAULT_SUMMARY
    given = [config.getoption(option) for option in checked]
    # By identity: 0 equals False, and is a value to check.
    if changed or any(value is not None and value is not False for value in given):
        from .session_settings import check_settings, read_settings

        check_settings(read_settings(config))


def pytest_configure_node(node: "Any") -> None:
    """Pass the id of the session to a worker of pytest-xdist."""
    node.workerinput["assay_session"] = node.config._assay_session


def pytest_pycollect_makeitem(collector: "pytest.Collector", name: str, obj: object) -> None:
    """Show pytest only those parameters of an evaluation that are fixtures.

    The others come from each sample. pytest reads a function's `__signature__`.
    """
    options = eval_options_of(obj)
    if options is None:
        return
    from .collection import build_visible_signature, mark_for_asyncio

    shown = build_visible_signature(options, collector, name)
    options.function.__signature__ = shown  # type: ignore[attr-defined]  # read by inspect
    if is_async(options.function) and collector.config.pluginmanager.hasplugin("asyncio"):
        mark_for_asyncio(options.function, collector, shown)


def pytest_generate_tests(metafunc: "pytest.Metafunc") -> None:
    """Make one test for each endpoint."""
    options = eval_options_of(metafunc.function)
    if options is not None and options.endpoints and not options.groupwise:
        from .collection import name_endpoints

        model = metafunc.config.getoption("--assay-model")
        endpoints = options.endpoints if model is None else (model,)
        metafunc.parametrize(ENDPOINT_ARGUMENT, endpoints, ids=name_endpoints(endpoints))


def pytest_itemcollected(item: "pytest.Item") -> None:
    """Mark evaluations, so that `-m evaluation` selects them."""
    if eval_options_of(getattr(item, "function", None)) is None:
        return
    from .collection import check_item

    check_item(item)
    item.add_marker("evaluation")


def pytest_runtest_call(item: "pytest.Item") -> "Generator[None, object, object]":
    """Run an async evaluation in the event loop of its fixtures, by the plugin that owns it."""
    options = eval_options_of(getattr(item, "function", None))
    if options is None or not is_async(options.function):
        return (yield)
    from .event_loop import run_call

    return (yield from run_call(item, options, _get_evaluations(item.config)))  # type: ignore[arg-type]  # a function


def pytest_pyfunc_call(pyfuncitem: "pytest.Function") -> bool | None:
    """Run an evaluation in place of calling its function once."""
    options = eval_options_of(pyfuncitem.obj)
    if options is None:
        return None
    from .event_loop import has_loop
    from .verdict import run_test

    if has_loop(pyfuncitem):
        return None
    run_test(pyfuncitem, options, _get_evaluations(pyfuncitem.config))
    return True


def pytest_runtest_protocol(item: "pytest.Item", nextitem: "pytest.Item | None") -> bool | None:
    """Run an evaluation that is compared with a baseline, and hold its reports back until then."""
    option = item.config.getoption
    compares = option("--assay-baseline") is not None and not option("--assay-update-baseline")
    if not compares or eval_options_of(getattr(item, "function", None)) is None:
        return None
    if item.config.pluginmanager.hasplugin("rerunfailures"):
        return None  # that plugin must see each report at once to decide about a rerun
    _get_evaluations(item.config).pending.run(item, nextitem)
    return True


def pytest_runtestloop(session: "pytest.Session") -> "Generator[None, object, object]":
    """Conclude all evaluations as soon as the last test has ended, also after an error."""
    try:
        return (yield)
    finally:
        if _has_session_files(session.config):
            _get_evaluations(session.config).conclude()


def pytest_runtest_makereport(
    item: "pytest.Item", call: "pytest.CallInfo[None]"
) -> "Generator[None, pytest.TestReport, pytest.TestReport]":
    """Redact the report of an evaluation, and make the summary agree with it."""
    report = yield
    options = eval_options_of(getattr(item, "function", None))
    is_xfail = hasattr(report, "wasxfail")
    if options is not None and (call.excinfo is not None or report.failed or is_xfail):
        from .verdict import record_report

        record_report(item, call, report, _get_evaluations(item.config))
    return report


def pytest_sessionfinish(session: "pytest.Session") -> None:
    """Write the summary of this process and its workers."""
    if _has_session_files(session.config):
        _get_evaluations(session.config).finish(session)


def pytest_terminal_summary(
    terminalreporter: "pytest.TerminalReporter", config: "pytest.Config"
) -> None:
    """Write the results of this session's evaluations to the terminal."""
    found = getattr(config, "_assay_evaluations", None)
    if found is not None:
        found.write_terminal_section(terminalreporter)


# The attribute that `pytest.hookimpl` sets; importing pytest here would cost every session time.
# `pytest_configure_node` exists only where pytest-xdist is installed. `pytest_pyfunc_call` must run
# before plugins that would call an async function themselves. The wrappers run around the other
# implementations: before conftest files are looked for, after the report is made, around the call,
# and after the tests of all workers.
pytest_configure_node.pytest_impl = {"optionalhook": True}  # type: ignore[attr-defined]  # see above
pytest_load_initial_conftests.pytest_impl = {"wrapper": True, "tryfirst": True}  # type: ignore[attr-defined]  # see above
pytest_runtest_makereport.pytest_impl = {"wrapper": True}  # type: ignore[attr-defined]  # see above
pytest_pyfunc_call.pytest_impl = {"tryfirst": True}  # type: ignore[attr-defined]  # see above
pytest_runtest_call.pytest_impl = {"wrapper": True}  # type: ignore[attr-defined]  # see above
pytest_runtestloop.pytest_impl = {"wrapper": True}  # type: ignore[attr-defined]  # see above


def _has_session_files(config: "pytest.Config") -> bool:
    # Workers of pytest-xdist do not conclude a session; without a folder no evaluation ran.
    if hasattr(config, "workerinput"):
        return False
    summary = config.rootpath / config.getoption("--assay-summary")
    session: str = config._assay_session  # type: ignore[attr-defined]  # ours
    return os.path.isdir(summary.with_name(f"{summary.name}.parts") / session)


def _get_evaluations(config: "pytest.Config") -> "Evaluations":
    # Created when the first evaluation runs: a session without any must not import the rest.
    found = getattr(config, "_assay_evaluations", None)
    if found is None:
        from .session_report import Evaluations

        found = Evaluations(config, config._assay_session)  # type: ignore[attr-defined]  # ours
        config._assay_evaluations = found  # type: ignore[attr-defined]  # ours
    return found
