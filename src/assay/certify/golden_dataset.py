"""The golden dataset: fetched, checked against its digest, and read whole before anything runs."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
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
    """A golden dataset that can be run."""

    samples: SampleStream
    uri: str
    """Without credentials."""

    sha256: str
    rows: int
    without_truth: int
    """Samples without a ground truth."""

    characters: int
    """Of all prompts together."""

    truth_characters: int
    questions: Questions
    """Which samples ask the same."""

    deviations: tuple[str, ...] = ()

    def certified(self) -> CertifiedDataset:
        """The dataset as a certificate names it."""
        return CertifiedDataset(
            uri=self.uri,
            sha256=self.sha256,
            rows=self.rows,
            distinct=self.questions.distinct,
            near_duplicates=self.questions.near,
        )

    def first(self, count: int) -> Iterator[Sample]:
        """The first samples, again and again if there are fewer."""
        while count > 0:
            for sample in self.samples:
                if count == 0:
                    return
                count -= 1
                yield sample


def open_golden(
    profile: EvaluationProfile,
    settings: CertifySettings,
    *,
    root: Path,
    folder: Path,
    where: str,
) -> LoadedGoldenDataset:
    """Fetch the dataset into `folder` and read all of it. Raises before the agent is called."""
    deviations = []
    uri, sha256 = profile.golden_dataset_uri, profile.golden_dataset_sha256
    rules = settings.fetch
    if settings.dataset is not None:
        deviations.append(f"the dataset is {settings.dataset}, not the manifest's")
        uri, sha256, root = settings.dataset, None, Path.cwd()
        # Named by whoever runs the command, not by a manifest.
        rules = replace(rules, allow_outside=True)
    if uri is None:
        raise ConfigError(
            "there is no `golden_dataset_uri`: nothing to run the agent on",
            where=f"{where}: evaluation",
            hint="add it, or rehearse with --dataset",
        )
    fetched = fetch_golden(
        uri,
        root=root,
        sha256=sha256,
        rules=rules,
        cache=folder,
    )
    found = read_golden(fetched)[: settings.limit]
    if settings.limit is not None:
        deviations.append(f"only {format_plural(len(found), 'sample')} of the dataset were run")
    # Read again while it is run: the file has a digest, which a resumed run is held to.
    samples = load_samples(fetched.path, settings.limit)
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
