"""An account of every batch, independent of the ledgers: draws as they happen, and updates that servers report."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest import mock

import simcluster
from simcluster.errors import RunError
from simcluster.results import load_run
from simcluster.workloads.progress.ledger import Ledger

A_GRADIENT: Final = ("sync_ps", "k_sync", "ssp", "softsync", "k_async", "edp")
"""Their servers count in `applied` the batches that they applied."""

A_ROUND: Final = ("fedbuff",)
"""Its server counts rounds, all of `interval` batches here."""


@dataclass
class Counted:
    """A run, and the samples that were *drawn*; those *applied*, where a server says how many in its only life."""

    summary: dict[str, Any]
    error: RunError | None
    drawn: int
    applied: int | None

    def wrong(self) -> Iterator[str]:
        """How the ledger differs from this count."""
        samples = self.summary.get("samples")
        if samples is None:
            yield "nothing is said of samples"
            return
        if samples["used"] + samples["lost"] != self.drawn:
            yield f"{samples} are not the {self.drawn} that were drawn"
        if self.applied is not None and samples["used"] != self.applied:
            yield f"{samples} are said to be used, and {self.applied} were applied"
        if not 0 <= samples["repeated"] <= samples["used"]:
            yield f"repeated without being used: {samples}"


def counted(experiment: Mapping[str, Any], **options: Any) -> Counted:
    """Run *experiment* in the simulator, whether it fails or not."""
    algorithm, batch = experiment["algorithm"], experiment["workload"]["batch_size"]
    error = None
    with tempfile.TemporaryDirectory() as folder, draws() as drawn:
        try:
            simcluster.run(dict(experiment), out=folder, options=options, report=False)
        except RunError as failed:
            error = failed
        found = load_run(Path(folder))
        width = 1 if algorithm["name"] in A_GRADIENT else algorithm.get("interval", 10)
        applied = None
        served = algorithm["name"] in (*A_GRADIENT, *A_ROUND)
        if served and not any(node.get("incarnation") for node in found.summary["nodes"].values() if not node["rank"]):
            said = found.metrics.query("name == 'applied'").value
            applied = int(max(said, default=0)) * width * batch
        return Counted(found.summary, error, len(drawn) * batch, applied)


@contextmanager
def draws() -> Iterator[list[int]]:
    """The number of each batch that any rank draws meanwhile, also again or in vain."""
    noted: list[int] = []
    draw = Ledger.draw

    def noting(ledger: Ledger, number: int) -> None:
        noted.append(number)
        draw(ledger, number)

    with mock.patch.object(Ledger, "draw", noting):
        yield noted
