"""Golden datasets: fetched by address within bounds, kept by digest, read as samples."""

from .fetching import fetch_golden
from .reading import read_golden
from .rules import FetchRules, GoldenDataset

__all__ = ["FetchRules", "GoldenDataset", "fetch_golden", "read_golden"]
