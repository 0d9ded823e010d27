"""Dataset files, hubs, URIs and bundles in, streamed as samples."""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)

__all__ = [
    "Adapter",
    "FetchRules",
    "GoldenDataset",
    "OnBadRow",
    "PromptTemplate",
    "ReadLimits",
    "SampleStream",
    "SkippedRows",
    "Source",
    "fetch_golden",
    "load_samples",
    "read_golden",
    "read_prompt",
]
