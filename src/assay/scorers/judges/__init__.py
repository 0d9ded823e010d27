"""Layer 2: models that judge samples by a rubric, and how far they can be trusted."""
