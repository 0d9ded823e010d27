"""Export samples: select, split, and write them as training files and foreign formats."""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)

__all__ = [
    "FORMATS",
    "Correction",
    "ExportOptions",
    "ExportReport",
    "Format",
    "Selection",
    "Split",
    "export_samples",
]
