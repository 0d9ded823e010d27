"""Commands of the evaluation's author that run in the workspace of a sample."""

import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.errors import ConfigError, DatasetError

from .program_run import ProgramEnd, list_safe_variables, run_program

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
# Options whose argument a program reads as code, such as `sh -c` and `node -e`.
_CODE_OPTION = re.compile(r"-\w*[ce]|--eval|--command")


class TaskCommand:
    """A command line without a shell, in which `{field}` is a field of the row.

    A value of a row is always one argument or a part of one. It is never read as code or as an
    option.
    """

    def __init__(self, text: str, *, where: str) -> None:
        self.text = text
        self._where = where
        try:
            self._argv = shlex.split(text)
        except ValueError as error:
            raise ConfigError(f"the command cannot be parsed: {error}", where=where) from None
        if not self._argv:
            raise ConfigError("the command is empty", where=where)
        program = self._argv[0]
        if _PLACEHOLDER.search(program):
            raise ConfigError("a row cannot name the program", where=where)
        if "/" not in program and shutil.which(program) is None:
            raise ConfigError(
                f"the program {program!r} was not found", where=where, hint="check PATH"
            )
        for option, argument in zip(self._argv, self._argv[1:], strict=False):
            if _CODE_OPTION.fullmatch(option) and _PLACEHOLDER.search(argument):
                raise ConfigError(
                    f"a field of the row would be read as code: {argument!r}",
                    where=where,
                    hint="pass it as an argument: sh -c 'pytest \"$1\"' check {tests}",
                )

    def fill(self, row: Mapping[str, Any], workspace: Path) -> list[str]:
        """Return the command of a row. Raises `DatasetError` for a value that cannot be used."""
        return [
            self._argv[0],
            *(self._fill_argument(each, row, str(workspace)) for each in self._argv[1:]),
        ]

    async def run(self, row: Mapping[str, Any], workspace: Path) -> ProgramEnd:
        """Run the command in the workspace, without the secrets of the environment."""
        variables = {**list_safe_variables(), "ASSAY_WORKSPACE": str(workspace)}
        return await run_program(self.fill(row, workspace), b"", cwd=workspace, variables=variables)

    def _fill_argument(self, argument: str, row: Mapping[str, Any], workspace: str) -> str:
        def replace(match: re.Match[str]) -> str:
            name = match[1]
            if name == "workspace":
                return workspace
            value = row.get(name)
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise DatasetError(
                    f"the field {name!r} of the row is missing or not text", where=self._where
                )
            text = str(value)
            if "\0" in text or (match.start() == 0 and text.startswith("-")):
                raise DatasetError(
                    f"the field {name!r} of the row cannot be an argument: {text[:80]!r}",
                    where=self._where,
                    hint="values must not start with a minus sign",
                )
            return text

        return _PLACEHOLDER.sub(replace, argument)
