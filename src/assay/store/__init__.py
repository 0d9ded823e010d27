"""The store: runs, results, attempts, training steps and sessions, in SQLite or PostgreSQL."""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)

__all__ = [
    "AttemptRow",
    "CopyProgress",
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
    "copy_run",
    "sample_key",
]
