"""Out: choosing samples, and writing training and foreign files."""

from .account import ExportReport, LeftOut
from .exporting import ExportOptions, Tokenise, export_samples
from .formats import FORMATS, Format, format_named
from .lengths import Lengths, load_tokenizer
from .overlap import EvaluationTexts, Overlap
from .selection import Selection
from .splitting import Split

__all__ = [
    "FORMATS",
    "EvaluationTexts",
    "ExportOptions",
    "ExportReport",
    "Format",
    "LeftOut",
    "Lengths",
    "Overlap",
    "Selection",
    "Split",
    "Tokenise",
    "export_samples",
    "format_named",
    "load_tokenizer",
]
