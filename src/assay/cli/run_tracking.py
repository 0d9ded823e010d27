"""A store that remembers the run which a command started."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from assay.stats import format_plural
from assay.store import Run, RunSpec, Store

from .progress_bar import Display


class RunTrackingStore(Store):
    """Remembers the started run: an error after its start is reported with a resume hint."""

    started: Run | None = None
    display: Display | None = None
    provenance: Mapping[str, Any] = MappingProxyType({})
    """The origin of the run: its code, or a bundle."""

    def start_run(self, spec: RunSpec) -> Run:
        named = replace(spec, config={**spec.config, **self.provenance})
        return self.track(super().start_run(named))

    def resume_run(
        self,
        run_id: str,
        spec: RunSpec,
        *,
        allow_changed_dataset: bool = False,
        allow_changed_scorer: bool = False,
        take_over: bool = False,
    ) -> Run:
        if take_over and self.display is not None:
            self._warn(self.run(run_id))
        run = super().resume_run(
            run_id,
            spec,
            allow_changed_dataset=allow_changed_dataset,
            allow_changed_scorer=allow_changed_scorer,
            take_over=take_over,
        )
        return self.track(run)

    def join_run(
        self,
        spec: RunSpec,
        *,
        shard: str,
        allow_changed_dataset: bool = False,
        allow_changed_total: bool = False,
    ) -> Run:
        named = replace(spec, config={**spec.config, **self.provenance})
        run = super().join_run(
            named,
            shard=shard,
            allow_changed_dataset=allow_changed_dataset,
            allow_changed_total=allow_changed_total,
        )
        return self.track(run)

    def _warn(self, run: Run) -> None:
        """Report the work that may be repeated while the other process lives."""
        row, display = run.row(), self.display
        # Without a live holder nothing can be repeated.
        if row.holder is None or display is None:
            return
        total, most = row.spec.total, "an unknown number of samples"
        if total is not None:
            most = (
                f"up to {format_plural(total * row.spec.repeats - row.totals.recorded, 'sample')}"
            )
        display.print_line(
            f"{row.holder} also holds this run: the model calls of {most} may be repeated; "
            "each result is recorded once"
        )

    def track(self, run: Run) -> Run:
        """Remember the started run, and print its id."""
        self.started = run
        if self.display is not None:
            self.display.print_line(f"run {run.id}")
        return run
