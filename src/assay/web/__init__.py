"""Local pages over a store: runs, samples and comparisons in a browser."""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)

__all__ = ["ViewServer", "ViewSettings", "write_static_report"]
