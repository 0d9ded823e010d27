"""Samples out: selected, split, and written as training files and foreign formats."""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)

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
