"""Engines: what executes the samples of a run, in this process or on the workers of Ray."""
