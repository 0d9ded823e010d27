"""assay: one sample, from pytest to policy."""
