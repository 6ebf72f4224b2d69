"""The results that a user gets, with figures: a run, a sweep, or a comparison of runs.

The methods that draw and track call the wing `lab`. It is imported when it is first used, since the
import takes longer than most commands run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from simcluster.errors import UsageError
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
"""A run, or the path of its folder."""


class Run(RunFolder):
    """A run, read from its folder.

    The summary is read at once, and everything else when it is first used.
    """

    @property
    def plot(self) -> RunPlots:
        """Plotly figures: convergence, timeline, busy, links, topology, staleness and
        consensus.
        """
        return self._plots

    @cached_property
    def _plots(self) -> RunPlots:
        from simcluster.lab.reports.plots import RunPlots

        return RunPlots(self)

    def _repr_html_(self) -> str:
        from simcluster.lab.reports.notebook import of_run

        return of_run(self)

    def write_report(self, topology: Topology | None = None) -> Path:
        """Write report.html (again), and return its path.

        *topology* is the run's topology; if it is not given, it is read from the folder.
        """
        from simcluster.lab.reports.report import write_report

        return write_report(self, topology or topology_of(self))

    def track(self, to: str, into: str | None = None) -> ExportReport:
        """Write this run to the tracker *to* (mlflow, wandb or tensorboard), like `simcluster
        export`.

        *into*: the directory to write to, or the URL of an MLflow server; by default runs/TRACKER.
        Raise UsageError if the tracker is unknown or not installed or cannot write there, and
        TrackingFailed if it fails.
        """
        from simcluster.lab.tracking import export

        return export(self, to, into)


def load_run(path: str | os.PathLike[str]) -> Run:
    """Return the run in the folder *path*. Raise UsageError if that is not a complete run
    folder.
    """
    return Run(path)


class Sweep(SweepFolder):
    """A finished sweep: its *folder*, *name* and swept *keys*, and `table` (pandas) with a row per
    point.
    """

    @cached_property
    def runs(self) -> list[Run | None]:
        """The run of each point, in order; None for a point without a finished run."""
        return [Run(folder) if (folder / SUMMARY).is_file() else None for folder in self.folders]

    @property
    def plot(self) -> SweepPlots:
        """Plotly figures: results against one swept key, results against two keys as a grid,
        and convergence.
        """
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
        """Write every run to the tracker *to*, all under the name of this sweep's folder: see
        `Run.track`.
        """
        from simcluster.lab.tracking import export

        return export(self, to, into)


def load_sweep(path: str | os.PathLike[str]) -> Sweep:
    """Return the sweep in the folder *path*.

    Raise UsageError if that is not the folder of a finished sweep.
    """
    folder = Path(path)
    return Sweep(folder, *read_sweep(folder))


@dataclass(frozen=True, repr=False)
class Comparison:
    """A comparison of runs, in pairs: the first run with each of the others."""

    pairs: tuple[RunPair, ...]

    def describe(self) -> str:
        """Return the comparison as plain text with words and numbers, in lines of up to about 110
        columns.
        """
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
        """Return {"pairs": [...]} with one comparison for each pair, in a form that json.dumps
        accepts.
        """
        return {"pairs": [pair.to_dict() for pair in self.pairs]}


def compare(first: AnyRun, *others: AnyRun) -> Comparison:
    """Compare *first* with each of *others*. Each is a run, or the path of a run's folder.

    Raise UsageError if there are no others, or if a path is not the folder of a run.
    """
    runs = [run if isinstance(run, RunFolder) else load_run(run) for run in (first, *others)]
    if not others:
        raise UsageError("runs", f"only {runs[0].folder}", "two runs or more")
    return Comparison(tuple(RunPair(runs[0], other) for other in runs[1:]))
