"""A run in sentences: what ran, where the time went, the slowest node and the busiest link, what would help, what next.

Every number is from the run's files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from simcluster.lab.reports.report_tables import dominated
from simcluster.lab.what_if.answer import LEAST_SHARE, in_words
from simcluster.lab.what_if.critical_path import PathPart, critical_path
from simcluster.results import Run, load_run
from simcluster.runs import words
from simcluster.runs.calls import SCRIPT, call_totals
from simcluster.runs.coverage import covered_by
from simcluster.runs.folder import size_of, topology_of
from simcluster.runs.spans import Span
from simcluster.topology import Topology

MOST_PARTS: Final = 4
MOST_NODES: Final = 8
"""Limits on what is listed: parts of the critical path, nodes."""

MOST_SPANS: Final = 2_000_000
"""A run with more recorded spans is explained without its critical path."""


@dataclass(frozen=True)
class TimeUse:
    """The shares of a node's time that went into computing, sending, and waiting for messages; the rest is *other*."""

    node: str
    compute: float
    send: float
    wait: float
    other: float


@dataclass(frozen=True)
class ExplainedRun:
    """A *run* with each node's *uses* of its first *covered_s* seconds, and the *parts* of the critical path."""

    run: Run
    topology: Topology
    covered_s: float
    uses: tuple[TimeUse, ...]
    parts: tuple[PathPart, ...]

    def sentences(self) -> list[str]:
        """Return the explanation, one sentence or two per entry."""
        return [
            self._what(),
            *self._outcome(),
            *self._times(),
            *self._calls(),
            *self._path(),
            *self._help(),
            *self._next(),
        ]

    def _what(self) -> str:
        told, summary = self.run.config, self.run.summary
        workload = told["workload"].get("name") or told["workload"].get("path")
        what = f"{summary['algorithm']} trained {workload}"
        if summary["algorithm"] == SCRIPT:
            what = f"the script {told['algorithm']['file'].rpartition('/')[2]} ran"
        return (
            f"{what} on {words.plural(size_of(summary), 'node')} of "
            f"{summary['topology']} ({'simulated' if summary['backend'] == 'sim' else summary['backend']}, seed "
            f"{summary['seed']}): {words.steps(summary)} in {words.seconds(summary['elapsed_s'])}."
        )

    def _outcome(self) -> list[str]:
        summary, found = self.run.summary, []
        if (error := summary.get("error")) is not None:
            found.append(f"It failed: {error['message'].splitlines()[0][:300]}")
        if summary["accuracy"] is not None:
            found.append(
                f"Held-out accuracy is {words.accuracy(summary['accuracy'])}, loss {words.number(summary['loss'])}."
            )
        elif summary["loss"] is not None:
            whose = "loss that the script logged last" if summary["algorithm"] == SCRIPT else "held-out loss"
            found.append(f"The {whose} is {words.number(summary['loss'])}.")
        elif words.timed_only(summary):
            found.append("Nothing was computed: the run has times and messages, but neither loss nor weights.")
        found += [f"{name} was lost: {reason}" for name, reason in [*(summary.get("lost") or {}).items()][:MOST_NODES]]
        return found + [f"Warning: {row['text']}" for row in self.run.warnings[:MOST_NODES]]

    def _times(self) -> list[str]:
        found = [dominated(self.run.summary, self.topology)]
        if not self.covers_enough:
            span = words.seconds(self.covered_s)
            found.append(
                f"The trace covers the first {span}, in which no node computed: nothing can be said of the rest."
            )
        elif self.uses:
            found += self._computed()
        summary = self.run.summary
        sent = f"{words.plural(summary['messages_sent'], 'message')}, {words.size(summary['bytes_sent'])}"
        return [*found, f"All nodes together sent {sent}."]

    def _computed(self) -> list[str]:
        """Return which nodes computed most and least; nodes with the same rounded share did equally."""
        span = "time" if self.covers_all else f"first {words.seconds(self.covered_s)}, which the trace covers"
        by_share: dict[str, list[TimeUse]] = {}
        for use in sorted(self.uses, key=lambda use: -use.compute):
            by_share.setdefault(words.share(use.compute), []).append(use)
        (share, most), *others = by_share.items()
        if len(self.uses) == 1:
            return [f"{most[0].node}: {_shares(most[0])}, of the {span}."]
        if not others:
            return [f"All {len(most)} nodes computed equally, {share} of the {span}."]
        found = [f"{_names(most)} computed most{_each(most, share)}, of the {span}."]
        share, least = others[-1]
        return [*found, f"{_names(least)} computed least{_each(least, share)}."]

    def _calls(self) -> list[str]:
        """Return what the rank of a script called that waited longest for its calls; the JSON has all."""
        totals = call_totals(self.run.calls)
        waited_s = {rank: sum(one.waited_s for one in of_rank.values()) for rank, of_rank in totals.items()}
        if not totals:
            return []
        longest = max(totals, key=lambda rank: (waited_s[rank], -rank))
        told = "; ".join(f"{operation}: {one.in_words}" for operation, one in totals[longest].items())
        return [f"{self.topology.workers[longest]} waited longest for its calls: {told}."]

    def _path(self) -> list[str]:
        told = [part for part in self.parts if part.share >= LEAST_SHARE][:MOST_PARTS]
        if not told or not self.covers_enough:
            return []
        listed = words.listing([f"{words.share(part.share)} went {in_words(part, self.topology)}" for part in told])
        end = "the run" if self.covers_all else f"the first {words.seconds(self.covered_s)}"
        return [f"On the critical path, what the end of {end} waited for, {listed}."]

    def _help(self) -> list[str]:
        if not self.parts or self.parts[0].share < LEAST_SHARE or not self.covers_enough:
            return []
        part = self.parts[0]
        what = {
            "compute": f"a faster device at {part.where}, or less work for it",
            "link": f"more bandwidth on {part.where}, or fewer bytes over it",
            "nic": f"a faster network card in {part.where}, or fewer bytes over it",
            "latency": f"less latency on {part.where}, or fewer messages one after another",
            "idle": f"less of what {part.where} waits for on a timer",
        }[part.kind]
        return [f"Most would be gained by {what}: at most {words.share(part.share)}, until another part decides."]

    def _next(self) -> list[str]:
        folder = self.run.folder
        found = [f"Next: `simcluster figure {folder} timeline --out timeline.svg` shows who waits for whom."]
        if self.run.summary["backend"] == "sim":
            found.append(
                f"`simcluster whatif {folder / 'config.yaml'}` tries every change of a link, device and setting."
            )
        else:
            found.append(f"`simcluster compare {folder} PREDICTION` holds it against a simulated run.")
        return found

    @property
    def covers_all(self) -> bool:
        return not self.run.rests

    @property
    def covers_enough(self) -> bool:
        """Whether the trace covers enough of the run to speak for it: a node has computed."""
        return self.covers_all or any(use.compute for use in self.uses)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON has it."""
        summary = self.run.summary
        names = ("name", "algorithm", "topology", "backend", "seed", "status", "steps", "elapsed_s", "loss", "accuracy")
        links = sorted(summary["links"].items(), key=lambda row: -row[1]["busy_fraction"])[:MOST_NODES]
        return {
            "kind": "run",
            **{name: summary[name] for name in (*names, "messages_sent", "bytes_sent")},
            "covered_s": self.covered_s,
            "nodes": [asdict(use) for use in self.uses],
            "busiest_links": [{"link": name, **use} for name, use in links],
            "calls": {
                self.topology.workers[rank]: {operation: one._asdict() for operation, one in of_rank.items()}
                for rank, of_rank in call_totals(self.run.calls).items()
            },
            "critical_path": [
                {"kind": part.kind, "where": part.where, "seconds": part.seconds, "share": part.share}
                for part in self.parts[:MOST_NODES]
            ],
            "sentences": self.sentences(),
        }


def explain_run(folder: Path) -> ExplainedRun:
    """Explain the run in *folder*. Raise UsageError for what is no complete run."""
    run = load_run(folder)
    topology = topology_of(run)
    spans, rests = run.spans, run.rests
    covered_s = float(run.summary["elapsed_s"])
    if rests:
        ends = {rank: max((span.end_s for of, span in spans if of == rank), default=0.0) for rank in rests}
        covered_s = min(covered_s, *ends.values())
    names = topology.workers
    by_rank: dict[int, list[Span]] = {rank: [] for rank in range(len(names))}
    for rank, span in spans:
        by_rank.setdefault(rank, []).append(span)
    uses = tuple(
        _use(names[rank], found, covered_s) for rank, found in by_rank.items() if rank < len(names) and covered_s
    )
    parts: list[PathPart] = []
    if spans and len(spans) <= MOST_SPANS:
        end = {"end_s": covered_s, "end_rank": min(rests)} if rests else {}
        parts = critical_path(spans, topology, cut_short=bool(rests), **end).parts  # type: ignore[arg-type]
    return ExplainedRun(run, topology, covered_s, uses, tuple(parts))


def _use(name: str, spans: Sequence[Span], covered_s: float) -> TimeUse:
    """Return the shares of *covered_s*: what a node does while it computes counts as computing, then as sending."""
    kinds = [("compute",), ("compute", "send"), ("compute", "send", "recv")]
    whole_s = np.array([0.0, covered_s])
    computing, sending, all_kinds = (
        float(covered_by([span for span in spans if span.kind in those], whole_s)[0]) for those in kinds
    )
    return TimeUse(name, computing, sending - computing, all_kinds - sending, 1 - all_kinds)


def _names(uses: Sequence[TimeUse]) -> str:
    names = [use.node for use in uses]
    more = [f"{len(names) - MOST_NODES} more"] if len(names) > MOST_NODES else []
    return words.listing([*names[:MOST_NODES], *more])


def _each(uses: Sequence[TimeUse], share: str) -> str:
    """Return the shares of the only one of *uses*, or the *share* that all of them computed."""
    return f": {_shares(uses[0])}" if len(uses) == 1 else f", each {share}"


def _shares(use: TimeUse) -> str:
    shares = (("computing", use.compute), ("sending", use.send), ("waiting for messages", use.wait))
    return words.listing([f"{words.share(share)} {what}" for what, share in shares])
