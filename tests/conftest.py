"""Settings of the whole suite."""

import os
import signal

from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester"]

# The suite itself may run on GitHub: what it tests is not to write to the page of that run.
for _name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
    os.environ.pop(_name, None)

# Nor is it to ask its servers on loopback through the proxy of whoever runs it.
for _name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
    os.environ.pop(_name, None)
    os.environ.pop(_name.lower(), None)

# Started in the background of a script, the suite inherits that Ctrl-C is ignored, and so would
# every process that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How fast examples are made says something about the machine, nothing about the code.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")
