"""The root folder of a session, which pytest determines before it knows the options of plugins.

It takes the value of `--assay-baseline FILE` for a test path then. A file elsewhere moves the root
folder, and with it the ids of all tests: none of them would be found in the baseline.
"""

import inspect

import pytest

# Not public, but there is no other way to ask which folder pytest would have chosen.
from _pytest.config.findpaths import determine_setup


def restore_root(config: "pytest.Config", options: list[str]) -> None:
    """Undo what the values of `options` did to the root folder. Raises `pytest.UsageError`."""
    # By now all options are known, and their values are no test paths any more.
    known = config.known_args_namespace
    arguments = {
        "inifile": known.inifilename,
        "override_ini": known.override_ini,
        "args": known.file_or_dir,
        "rootdir_cmd_arg": known.rootdir or None,
        "invocation_dir": config.invocation_params.dir,
    }
    # pytest 8 has no `override_ini`.
    names = inspect.signature(determine_setup).parameters
    root, inipath, *_ = determine_setup(**{name: arguments[name] for name in names})
    before = config.rootpath
    if (root, inipath) == (before, config.inipath):
        return
    if inipath != config.inipath:
        # The settings of the wrong file, or of none, are in use already.
        values = " or ".join(options)
        raise pytest.UsageError(
            f"pytest reads the value of {values} as a test path, so that its root folder is "
            f"{before} instead of {root}; write {options[0]}=PATH, or pass --rootdir"
        )
    config._rootpath = root
    if known.confcutdir == str(before):
        known.confcutdir = str(root)
