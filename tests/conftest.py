"""Settings of the whole suite."""

from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester"]

# How fast examples are made says something about the machine, nothing about the code.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")
