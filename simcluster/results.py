"""The results that a user gets: a run, a sweep, a comparison of runs, each with its figures.

Its methods are doors to the lab, which draws and tracks: that is imported at its first use, as it takes longer than
most commands run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from simcluster.errors import Problem, UsageError
from simcluster.paths.inside import write_whole
from simcluster.runs.comparison.compare import RunPair
from simcluster.runs.folder import REPORT, SUMMARY, RunFolder, topology_of
from simcluster.runs.sweep.sweep_folder import EXPLORER, SweepFolder, read_sweep

if TYPE_CHECKING:
    from simcluster.lab.reports.compare_plots import ComparePlots
    from simcluster.lab.reports.plots import RunPlots
    from simcluster.lab.reports.sweeps.plots import SweepPlots
    from simcluster.lab.tracking import ExportReport
    from simcluster.topology import Topology


AnyRun: TypeAlias = "RunFolder | str | os.PathLike[str]"
"""A run, or the folder of one."""


class Run(RunFolder):
    """A run as its folder tells it. The summary is read at once, everything else when it is first asked for."""

    @property
    def plot(self) -> RunPlots:
        """Plotly figures: convergence, timeline, busy, links, topology, staleness, consensus."""
        return self._plots

    @cached_property
    def _plots(self) -> RunPlots:
        from simcluster.lab.reports.plots import RunPlots

        return RunPlots(self)

    def _repr_html_(self) -> str:
        from simcluster.lab.reports.notebook import of_run

        return of_run(self)

    def write_report(self, topology: Topology | None = None) -> Path:
        """Write report.html (again), and return its path. *topology* is the run's, if that is known already."""
        from simcluster.lab.reports.report import write_report

        return write_report(self, topology or topology_of(self))

    def track(self, to: str, into: str | None = None) -> ExportReport:
        """Write this run to the tracker *to* (mlflow, wandb, tensorboard), below *into*, as `simcluster export` does.

        Raises UsageError if that is not installed, TrackingFailed if it fails.
        """
        from simcluster.lab.tracking import export

        return export(self, to, into)


def load_run(path: str | os.PathLike[str]) -> Run:
    """Return the run in folder *path*. Raises UsageError for what is not a complete run folder."""
    return Run(path)


class Sweep(SweepFolder):
    """A finished sweep: its *folder*, *name*, the *keys* that were swept, and `table` (pandas), one row a point."""

    @cached_property
    def runs(self) -> list[Run | None]:
        """The run of each point; None where there is none."""
        return [Run(folder) if (folder / SUMMARY).is_file() else None for folder in self.folders]

    @property
    def plot(self) -> SweepPlots:
        """Plotly figures: against a swept key, a grid of two, convergence."""
        return self._plots

    @cached_property
    def _plots(self) -> SweepPlots:
        from simcluster.lab.reports.sweeps.plots import SweepPlots

        return SweepPlots(self.as_text, self.keys, self.runs)

    def _repr_html_(self) -> str:
        from simcluster.lab.reports.notebook import of_sweep

        return of_sweep(self)

    def write_pages(self) -> list[Path]:
        """Write report.html and explorer.html (again), and return their paths."""
        from simcluster.lab.reports.sweeps import explorer, report

        reported = [(folder / REPORT).is_file() for folder in self.folders]
        pages = {
            REPORT: report.render(self.name, self.as_text, self.keys, self.plot),
            EXPLORER: explorer.render(self.name, self.as_text, self.keys, reported, self.configs),
        }
        for name, text in pages.items():
            write_whole(self.folder, name, content=text.encode())
        return [self.folder / name for name in pages]

    def track(self, to: str, into: str | None = None) -> ExportReport:
        """Write every run to the tracker *to*, all under this folder's name: see `Run.track`."""
        from simcluster.lab.tracking import export

        return export(self, to, into)


def load_sweep(path: str | os.PathLike[str]) -> Sweep:
    """Return the sweep in folder *path*. Raises UsageError for what is not the folder of a sweep that has ended."""
    folder = Path(path)
    return Sweep(folder, *read_sweep(folder))


@dataclass(frozen=True, repr=False)
class Comparison:
    """Runs compared: each pair is the first run and one of the others."""

    pairs: tuple[RunPair, ...]

    def describe(self) -> str:
        """Return the comparison in words and numbers, plain text of up to about 110 columns."""
        from simcluster.lab.reports.compare_words import describe

        return "\n\n".join(describe(pair) for pair in self.pairs)

    def _repr_html_(self) -> str:
        from simcluster.lab.reports.notebook import of_comparison

        return of_comparison(self.pairs)

    def __repr__(self) -> str:
        others = ", ".join(repr(str(pair.b.folder)) for pair in self.pairs)
        return f"Comparison({str(self.pairs[0].a.folder)!r} with {others})"

    @property
    def plot(self) -> ComparePlots:
        """Plotly figures: predicted_measured."""
        from simcluster.lab.reports.compare_plots import ComparePlots

        return ComparePlots(self.pairs)

    def to_dict(self) -> dict[str, Any]:
        """Return {"pairs": [...]}, as JSON can hold it."""
        return {"pairs": [pair.to_dict() for pair in self.pairs]}


def compare(first: AnyRun, *others: AnyRun) -> Comparison:
    """Compare each of *others* with *first*, given as runs or as their folders.

    Raises UsageError if there are no others, or for a path that is no run's folder.
    """
    runs = [run if isinstance(run, RunFolder) else load_run(run) for run in (first, *others)]
    if not others:
        raise UsageError(Problem("runs", f"only {runs[0].folder}", "two runs or more"))
    return Comparison(tuple(RunPair(runs[0], other) for other in runs[1:]))
