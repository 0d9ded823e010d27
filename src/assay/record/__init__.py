"""The store: record samples durably, resume a run, read it back, keep sessions."""

from .database import StoreSettings
from .keys import DoneKeys, sample_key
from .lease import Holder
from .reading import AttemptRow, ResultRow, Retried
from .run import Run
from .runs import RunRow, RunSpec, Totals
from .sessions import SessionRow
from .steps import StepRow
from .store import Store
from .writer import Writer, WriterSettings

__all__ = [
    "AttemptRow",
    "DoneKeys",
    "Holder",
    "ResultRow",
    "Retried",
    "Run",
    "RunRow",
    "RunSpec",
    "SessionRow",
    "StepRow",
    "Store",
    "StoreSettings",
    "Totals",
    "Writer",
    "WriterSettings",
    "sample_key",
]
