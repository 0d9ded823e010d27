"""The golden dataset: fetched, verified by digest, and read completely before anything runs."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat
from pathlib import Path

from assay.datasets import SampleStream, fetch_golden, load_samples, read_golden
from assay.errors import ConfigError
from assay.stats import format_plural
from assay.types import EvaluationProfile, Sample

from .certified import CertifiedDataset
from .certify_settings import CertifySettings
from .near_duplicates import Questions, find_duplicates


@dataclass(frozen=True)
class LoadedGoldenDataset:
    """A golden dataset, ready to run."""

    samples: SampleStream
    uri: str
    """Without credentials."""

    sha256: str
    rows: int
    without_truth: int
    """Samples without a ground truth."""

    characters: int
    """Characters of all prompts."""

    truth_characters: int
    questions: Questions
    """Duplicates and near-duplicates among the samples."""

    deviations: tuple[str, ...] = ()

    def describe(self) -> CertifiedDataset:
        """Return the dataset as a certificate describes it."""
        return CertifiedDataset(
            uri=self.uri,
            sha256=self.sha256,
            rows=self.rows,
            distinct=self.questions.distinct,
            near_duplicates=self.questions.near,
        )

    def first(self, count: int) -> Iterator[Sample]:
        """Return the first `count` samples, starting over if there are fewer."""
        return islice(chain.from_iterable(repeat(self.samples)), count)


def open_golden(
    profile: EvaluationProfile,
    settings: CertifySettings,
    *,
    root: Path,
    folder: Path,
    where: str,
) -> LoadedGoldenDataset:
    """Fetch the dataset into `folder` and read all of it, before the agent is called."""
    deviations = []
    uri, sha256 = profile.golden_dataset_uri, profile.golden_dataset_sha256
    rules = settings.fetch
    if settings.dataset is not None:
        deviations.append(f"the dataset is {settings.dataset}, not the manifest's")
        uri, sha256, root = settings.dataset, None, Path.cwd()
        # The path comes from the command line, which is trusted more than a manifest.
        rules = replace(rules, allow_outside=True)
    if uri is None:
        raise ConfigError(
            "`golden_dataset_uri` is missing: the agent has no samples to run on",
            where=f"{where}: evaluation",
            hint="add it, or pass --dataset; that result is not certifiable",
        )
    fetched = fetch_golden(uri, root=root, sha256=sha256, rules=rules, cache=folder)
    found = read_golden(fetched)[: settings.max_samples]
    if settings.max_samples is not None:
        deviations.append(f"only {format_plural(len(found), 'sample')} of the dataset were run")
    # The run reads the file again: its digest lets a resumed run detect a changed dataset.
    samples = load_samples(fetched.path, settings.max_samples)
    samples.name = fetched.uri
    truths = [sample.ground_truth for sample in found if sample.ground_truth is not None]
    return LoadedGoldenDataset(
        samples=samples,
        uri=fetched.uri,
        sha256=fetched.sha256,
        rows=len(found),
        without_truth=len(found) - len(truths),
        characters=sum(len(message.text) for sample in found for message in sample.messages),
        truth_characters=sum(len(str(truth)) for truth in truths),
        questions=find_duplicates(found),
        deviations=tuple(deviations),
    )
