"""Runs and sweeps as `import simcluster` hands them out: what their folders tell, figures, and a way into trackers.

What draws and what tracks is imported when first asked for: each takes longer than most commands run.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from simcluster.inside import write_whole
from simcluster.runs.folder import REPORT, SUMMARY, RunFolder
from simcluster.runs.sweep_folder import EXPLORER, SweepFolder, read_sweep

if TYPE_CHECKING:
    from simcluster.reports.plots import RunPlots
    from simcluster.reports.sweep_plots import SweepPlots
    from simcluster.tracking import Exported


class Run(RunFolder):
    """A run as its folder tells it. The summary is read at once, everything else when it is first asked for."""

    @cached_property
    def plot(self) -> RunPlots:
        """Plotly figures: convergence, timeline, busy, links, topology, staleness, consensus."""
        from simcluster.reports.plots import RunPlots

        return RunPlots(self)

    def track(self, to: str, into: str | None = None) -> Exported:
        """Writes this run to the tracker *to* (mlflow, wandb, tensorboard), below *into*, as `simcluster export` does.

        Raises UsageError if that is not installed, TrackingFailed if it fails.
        """
        from simcluster.tracking import export

        return export(self, to, into)


def load_run(path: str | os.PathLike[str]) -> Run:
    """The run in folder *path*. Raises UsageError for what is not a complete run folder."""
    return Run(path)


class Sweep(SweepFolder):
    """A finished sweep: its *folder*, *name*, the *keys* that were swept, and `table` (pandas), one row a point."""

    @cached_property
    def runs(self) -> list[Run | None]:
        """The run of each point; None where there is none."""
        return [Run(folder) if (folder / SUMMARY).is_file() else None for folder in self.folders]

    @cached_property
    def plot(self) -> SweepPlots:
        """Plotly figures: against a swept key, a grid of two, convergence."""
        from simcluster.reports.sweep_plots import SweepPlots

        return SweepPlots(self.table, self.keys, self.runs)

    def write_pages(self) -> list[Path]:
        """Writes (again) report.html and explorer.html, and returns their paths."""
        from simcluster.reports import explorer, sweep_report

        reported = [(folder / REPORT).is_file() for folder in self.folders]
        pages = {
            REPORT: sweep_report.render(self.name, self.table, self.keys, self.plot),
            EXPLORER: explorer.render(self.name, self.table, self.keys, reported, self.configs),
        }
        for name, text in pages.items():
            write_whole(self.folder, name, content=text.encode())
        return [self.folder / name for name in pages]

    def track(self, to: str, into: str | None = None) -> Exported:
        """Writes every run to the tracker *to*, all under this folder's name: see `Run.track`."""
        from simcluster.tracking import export

        return export(self, to, into)


def load_sweep(path: str | os.PathLike[str]) -> Sweep:
    """The sweep in folder *path*. Raises UsageError for what is not the folder of a sweep that has ended."""
    folder = Path(path)
    return Sweep(folder, *read_sweep(folder))
