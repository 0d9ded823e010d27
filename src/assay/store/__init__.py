"""The store: runs, results, attempts, training steps and sessions, in SQLite or PostgreSQL."""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)

__all__ = [
    "AttemptRow",
    "ResultRow",
    "ResultTable",
    "Run",
    "RunRow",
    "RunSpec",
    "SampleLabel",
    "SessionRow",
    "StepRow",
    "Store",
    "StoreSettings",
    "TableGroup",
    "TablePage",
    "TableQuery",
    "TableRow",
    "sample_key",
]
