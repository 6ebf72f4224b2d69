"""Explain a run in sentences: its outcome, where the time went, and what would help.

Every number is from the run's files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simcluster.lab.explain.outages import Outage, outages
from simcluster.lab.reports.report_tables import dominated
from simcluster.lab.reports.sections.coverage import covered_by
from simcluster.lab.what_if.answer import LEAST_SHARE, parts_listed
from simcluster.lab.what_if.critical_path import CriticalPath, PathPart, critical_path
from simcluster.results import Run, load_run
from simcluster.runs import words
from simcluster.runs.calls import SCRIPT, call_totals
from simcluster.runs.folder import size_of, topology_of
from simcluster.runs.spans import Span
from simcluster.topology import Topology

MOST_NODES = 8
"""Limit on the nodes, links and warnings that a list shows."""

MOST_SPANS = 2_000_000
"""Limit on recorded spans: the explanation of a longer trace leaves out the critical path."""


@dataclass(frozen=True)
class TimeUse:
    """The shares of a node's time for computing, sending and waiting for messages.

    *other* is the remaining share.
    """

    node: str
    compute: float
    send: float
    wait: float
    other: float


@dataclass(frozen=True)
class ExplainedRun:
    """A *run*, each node's *uses* of its time, and the *parts* of the critical path.

    The uses are those of the first *covered_s* seconds, which the trace covers. *outages* are the
    faults that the path waited for.
    """

    run: Run
    topology: Topology
    covered_s: float
    uses: tuple[TimeUse, ...]
    parts: tuple[PathPart, ...]
    outages: Sequence[Outage] = ()

    def sentences(self) -> list[str]:
        """Return the explanation, one or two sentences per entry."""
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
        told = self.run.config
        summary = self.run.summary
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
        summary = self.run.summary
        found = []
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
        """Return sentences that name the nodes that computed most and least.

        Shares that are equal after rounding count as equal.
        """
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
        """Return sentences on the calls of the script rank that waited longest.

        `to_dict` has the calls of all ranks.
        """
        totals = call_totals(self.run.calls)
        waited_s = {rank: sum(one.waited_s for one in of_rank.values()) for rank, of_rank in totals.items()}
        if not totals:
            return []
        longest = max(totals, key=lambda rank: (waited_s[rank], -rank))
        told = "; ".join(f"{operation}: {one.in_words}" for operation, one in totals[longest].items())
        return [f"{self.topology.workers[longest]} waited longest for its calls: {told}."]

    def _path(self) -> list[str]:
        listed = parts_listed(self.parts, self.topology)
        if not listed or not self.covers_enough:
            return []
        end = "the run" if self.covers_all else f"the first {words.seconds(self.covered_s)}"
        return [f"On the critical path, what the end of {end} waited for, {listed}.", *map(str, self.outages)]

    def _help(self) -> list[str]:
        if not self.parts or self.parts[0].share < LEAST_SHARE or not self.covers_enough:
            return []
        seconds = {part: part.seconds - self._out_s(part) for part in self.parts}
        part = max(seconds, key=lambda part: seconds[part])
        gained_s = seconds[part]
        what = {
            "compute": f"a faster device at {part.where}, or less work for it",
            "link": f"more bandwidth on {part.where}, or fewer bytes over it",
            "nic": f"a faster network card in {part.where}, or fewer bytes over it",
            "latency": f"less latency on {part.where}, or fewer messages one after another",
            "idle": f"less of what {part.where} waits for on a timer",
        }[part.kind]
        if self.outages and self.outages[0].seconds > gained_s:
            gained_s = self.outages[0].seconds
            what = f"{self.outages[0].what} if it were not {self.outages[0].done}"
        share = gained_s * self.parts[0].share / self.parts[0].seconds
        return [f"Most would be gained by {what}: at most {words.share(share)}, until another part decides."]

    def _out_s(self, part: PathPart) -> float:
        """Return the time of *part* in which faults had stopped what it waited for."""
        return sum(outage.waited_s.get((part.kind, part.where), 0.0) for outage in self.outages)

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
        """Whether the trace covers the whole run."""
        return not self.run.rests

    @property
    def covers_enough(self) -> bool:
        """Whether the trace covers enough for conclusions, which means that a node has computed."""
        return self.covers_all or any(use.compute for use in self.uses)

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as JSON-compatible values."""
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
            "critical_path": [part.to_dict() for part in self.parts[:MOST_NODES]],
            "sentences": self.sentences(),
        }


def explain_run(folder: Path) -> ExplainedRun:
    """Explain the run in *folder*. Raise UsageError if the folder has no complete run."""
    run = load_run(folder)
    topology = topology_of(run)
    spans, rests = run.spans, run.rests
    covered_s = float(run.summary["elapsed_s"])
    if rests:
        # Each node's trace ends when it reaches the limit of spans: only the time that all traces
        # cover can be compared.
        ends = {rank: max((span.end_s for of, span in spans if of == rank), default=0.0) for rank in rests}
        covered_s = min(covered_s, *ends.values())
    names = topology.workers
    by_rank: dict[int, list[Span]] = {rank: [] for rank in range(len(names))}
    for rank, span in spans:
        by_rank.setdefault(rank, []).append(span)
    uses = tuple(
        _use(names[rank], found, covered_s) for rank, found in by_rank.items() if rank < len(names) and covered_s
    )
    path = CriticalPath((), 0.0)
    if spans and len(spans) <= MOST_SPANS:
        end = {"end_s": covered_s, "end_rank": min(rests)} if rests else {}
        path = critical_path(spans, topology, cut_short=bool(rests), **end)  # type: ignore[arg-type]
    told = outages(path.legs, run.summary.get("faults", ()), topology)
    return ExplainedRun(run, topology, covered_s, uses, tuple(path.parts), told)


def _use(name: str, spans: Sequence[Span], covered_s: float) -> TimeUse:
    """Return the shares of *covered_s* that node *name* spent on each activity.

    If the node had several activities at once, the time counts as computing, or else as sending.
    """
    kinds = [("compute",), ("compute", "send"), ("compute", "send", "recv")]
    whole_s = np.array([0.0, covered_s])
    computing, sending, all_kinds = (
        float(covered_by([span for span in spans if span.kind in those], whole_s)[0]) for those in kinds
    )
    return TimeUse(name, computing, sending - computing, all_kinds - sending, 1 - all_kinds)


def _names(uses: Sequence[TimeUse]) -> str:
    return words.some([use.node for use in uses], MOST_NODES)


def _each(uses: Sequence[TimeUse], share: str) -> str:
    """Return all shares if *uses* has one node; otherwise *share*, which each node computed."""
    return f": {_shares(uses[0])}" if len(uses) == 1 else f", each {share}"


def _shares(use: TimeUse) -> str:
    shares = (("computing", use.compute), ("sending", use.send), ("waiting for messages", use.wait))
    return words.listing([f"{words.share(share)} {what}" for what, share in shares])
