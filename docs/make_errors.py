"""Writes docs/errors.md: every exception of assay, its exit status, and what to do.

python docs/make_errors.py
"""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

from assay import errors
from assay.agents import AgentFault, RolloutFailed
from assay.cli.exit_status import choose_exit_status
from assay.errors import AssayError
from assay.types import Boundary

DOCS = Path(__file__).parent
PAGE = DOCS / "errors.md"
SOURCE = DOCS.parent / "src" / "assay"

HEAD = """# Errors

Every error that assay raises on purpose is an `AssayError`. It names the problem, the place and
the fix, in that order:

```console
$ assay eval questions.csv --agent mock:echo --scorer exact_answer
questions.csv: the file or folder does not exist
  hint: ...
```

In Python the parts are attributes:

```python
from assay.errors import AssayError, ConfigError

try:
    raise ConfigError("repeats=0 is not a number above 0", where="EvalConfig", hint="use 1")
except AssayError as error:
    assert (error.message, error.where, error.hint) == (
        "repeats=0 is not a number above 0",
        "EvalConfig",
        "use 1",
    )
```

Constructing a type from wrong values raises pydantic's `ValidationError`. A command turns each
error into an [exit status](commands.md): 2 for a wrong request, where nothing was run, and 3
where a second try can succeed.

This page is generated from the code by `docs/make_errors.py`.

## Limits

- Texts of messages may change with a version. Test the class of an error, or the exit status.
- An exception of your own agent or scorer is not an `AssayError`. It is kept with its sample.
"""

ADVICE = {
    "AssayError": "Catch it to handle every error of assay.",
    "ConfigError": "Correct the argument, option or file that the message names.",
    "ManifestError": "Correct the lines of the manifest that the message lists.",
    "MissingExtra": "Run the `pip install` line of the hint.",
    "DatasetError": "Check the path, the format and the rows: [datasets](datasets.md).",
    "BadRow": 'Correct the row, or skip such rows with `on_bad_row="skip"`: '
    "[rows that are wrong](datasets.md#rows-that-are-wrong).",
    "DatasetOutOfReach": "Check network and credentials, and run the command again.",
    "WireError": "Check that the file has the format you named: [file formats](file-formats.md).",
    "EndpointError": "Run `assay doctor --model ...`; resume the run when the model answers again: "
    "[when things go wrong](endpoints.md#when-things-go-wrong).",
    "AccessDenied": "Set the key of the provider: [keys](endpoints.md#keys).",
    "GatewayFault": "Resume the run; see [faults of the gateway](gateway.md#faults).",
    "ReplayDifference": "Record the run again, or allow live calls: "
    "[when a call differs](replay.md#when-a-call-differs).",
    "EnvironmentFault": "Repair the environment and resume the run: "
    "[the environment](reliability.md#the-environment).",
    "ScorerFault": "Return a number, a bool or a `Score`: [scorers](scorers.md#what-it-returns).",
    "TokenError": "See [tokens and masks](tokens.md).",
    "TrainingError": "Resume from the last checkpoint: [stop and resume](grpo.md#stop-and-resume).",
    "RunStopped": "Correct the cause in the message, then run the printed `--resume` command.",
    "StoreError": "Check disk, permissions and database: [the store](store.md).",
    "AgentFault": "Correct your agent; its traceback is kept with the sample: "
    "[failures](agents.md#failures-time-and-cost).",
    "RolloutFailed": "`__cause__` is the failure; the trajectory until then is kept.",
}
"""What to do about each error, in the order of the page."""

BOUNDARIES = {
    "endpoint": "the model did not answer, or not usably",
    "environment": "a tool or an environment broke",
    "scorer": "the scorer raised, or returned something that is not a score",
    "dataset": "a row is invalid",
    "agent": "your own agent raised",
    "gateway": "the gateway that records the agent's calls broke",
    "replay": "a call is not in the recording",
}


def list_errors() -> list[type[AssayError]]:
    """List the public exceptions."""
    kinds = [
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, AssayError)
    ]
    return [*kinds, AgentFault, RolloutFailed]


def build_page() -> str:
    """Build the page."""
    by_name = {kind.__name__: kind for kind in list_errors()}
    if unknown := set(by_name) ^ set(ADVICE):
        raise SystemExit(f"describe these errors in {__file__}: {', '.join(sorted(unknown))}")
    if unknown := {each.value for each in Boundary} ^ set(BOUNDARIES):
        raise SystemExit(f"describe these boundaries in {__file__}: {', '.join(sorted(unknown))}")
    rows = "".join(_describe_error(by_name[name]) for name in ADVICE)
    failures = "".join(f"| `{name}` | {meaning} |\n" for name, meaning in BOUNDARIES.items())
    return (
        f"{HEAD}\n## Exceptions\n\n"
        "| error | is a | meaning | exit status of a command | what to do |\n"
        f"|---|---|---|---|---|\n{rows}"
        "\n## Failed samples\n\nA failure inside of a run does not end it. It is kept with its "
        "sample as `sample.failure`: the class and message\nof the exception, its traceback, and "
        "the part that is responsible. `--resume` tries the sample again.\n\n"
        f"| boundary | meaning |\n|---|---|\n{failures}"
    )


def _describe_error(kind: type[AssayError]) -> str:
    parents = [f"`{base.__name__}`" for base in kind.__bases__ if issubclass(base, AssayError)]
    summary = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
    # Made without its constructor: some take more than a message.
    status = choose_exit_status(kind.__new__(kind))
    advice = ADVICE[kind.__name__]
    parent = ", ".join(parents) or "`Exception`"
    return f"| `{kind.__name__}` | {parent} | {summary} | {status} | {advice} |\n"


def build_messages() -> str:
    """Build the section of the site that lists every message with its hint, by unit."""
    parts = [
        "\n## Messages\n\nEvery message in the code. `…` is a value. "
        "Search this page for the words that you see.\n"
    ]
    names = set(ADVICE)
    for unit in sorted(path for path in SOURCE.iterdir() if path.name != "__pycache__"):
        files = sorted(unit.rglob("*.py")) if unit.is_dir() else [unit]
        rows = sorted({row for file in files for row in _list_raised(file, names)})
        if rows:
            table = "".join(rows)
            head = "| message | error | hint |\n|---|---|---|\n"
            parts.append(f"\n### {unit.stem}\n\n{head}{table}")
    return "".join(parts)


def _list_raised(file: Path, names: set[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            hints = [_read_text(word.value) for word in node.keywords if word.arg == "hint"]
            if node.args and (text := _read_text(node.args[0])):
                yield f"| {text} | `{node.func.id}` | {''.join(hints)} |\n"


def _read_text(node: ast.expr) -> str:
    """Return a literal, an f-string or the start of a sum as a line of a table, else nothing."""
    if isinstance(node, ast.BinOp) and (start := _read_text(node.left)):
        return f"{start}…"
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = node.value
    elif isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
        text = "".join(map(str, parts))
    else:
        return ""
    line = " ".join(text.split())
    return "" if line.strip("… .:;") == "" else line.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(build_page(), encoding="utf-8")
