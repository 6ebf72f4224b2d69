"""Compare two runs: settings, weights, counts, times, metrics, nodes and links.

Counts, weights and metrics are compared exactly: on two backends, or twice on one, they should be
equal to the last bit. Times are compared by their ratio. Different kernels round differently, and
training amplifies the rounding errors. So final weights from different kernels are compared with a
tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from simcluster.errors import UsageError
from simcluster.runs.calls import SCRIPT, CallTotals, call_totals, step_s
from simcluster.runs.comparison.prediction import PredictedMemory, PredictedTime, links, memory, phases
from simcluster.runs.comparison.settings import ABSENT, SettingDifference, differences
from simcluster.runs.folder import topology_of

if TYPE_CHECKING:
    from simcluster.runs.folder import RunFolder

IDENTITY = ("name", "backend", "algorithm", "topology", "seed", "status", "weights_sha256", "trace_sha256")
COUNTS = ("steps", "messages_sent", "bytes_sent")
RESULTS = ("loss", "accuracy")
BILL = ("joules", "price_usd")
MEMORY = ("peak_rss_bytes", "grown_rss_bytes", "predicted_peak_bytes")
NODE_NUMBERS = ("compute_s", "wait_s", "bytes_sent", "bytes_received", "messages_sent", *MEMORY, *BILL)

TOLERANCE = 1e-3
"""Limit on the relative difference of final weights, in the Euclidean norm, for different kernels.

Rounding alone causes about 1e-7, which grows with the steps.
"""

KERNELS = ("torch", "blas", "cpu_capability", "device")


class MetricDifference(NamedTuple):
    """The first recorded number that differs between two runs."""

    step: int
    node: str
    name: str
    a: float
    b: float


@dataclass(frozen=True)
class MetricsCompared:
    """The numbers of recorded values: in both runs, only in one, and in both but different.

    Values are matched by step, node and name. *first* is the first difference.
    """

    in_both: int
    only_a: int
    only_b: int
    differ: int
    first: MetricDifference | None


class KernelDifference(NamedTuple):
    """A property *key* of the kernels that differs on *node* between two runs."""

    node: str
    key: str
    a: str
    b: str


@dataclass(frozen=True)
class Judgement:
    """The comparison of final weights from different kernels by a tolerance.

    *found* lists the differences of the kernels. *difference* is the relative difference of the
    weights, None if it is unknown.
    """

    found: list[KernelDifference]
    difference: float | None

    @property
    def within(self) -> bool | None:
        return None if self.difference is None else self.difference <= TOLERANCE

    def to_dict(self) -> dict[str, Any]:
        finite = self.difference is not None and self.difference < float("inf")
        return {
            "unlike": [one._asdict() for one in self.found],
            "tolerance": TOLERANCE,
            "difference": self.difference if finite else None,
            "within_tolerance": self.within,
        }


@dataclass(frozen=True)
class RunPair:
    """Two runs, and the results of comparing them."""

    a: RunFolder
    b: RunFolder

    @cached_property
    def settings(self) -> list[SettingDifference]:
        """All settings that differ; see `differences`."""
        return differences(self.a.config, self.b.config)

    @cached_property
    def same_weights(self) -> bool | None:
        """Whether the final weights are equal to the bit; None if a run has none."""
        a, b = self.a.summary["weights_sha256"], self.b.summary["weights_sha256"]
        return None if a is None or b is None else bool(a == b)

    @cached_property
    def nodes_with_other_weights(self) -> list[str]:
        """The names of the nodes, in rank order, whose final weights differ between a and b."""
        a, b = self.a.summary["nodes"], self.b.summary["nodes"]
        return [name for name in a if name in b and a[name]["weights_sha256"] != b[name]["weights_sha256"]]

    @cached_property
    def kernels(self) -> Judgement | None:
        """The comparison by a tolerance if both the weights and the kernels differ, else None."""
        if self.same_weights is not False and not self.nodes_with_other_weights:
            return None
        nodes = self.b.summary["nodes"]
        found = [
            KernelDifference(name, key, str(one[key]), str(other[key]))
            for name, node in self.a.summary["nodes"].items()
            # A run that did not record a property of its kernels counts as equal in it.
            if (one := node.get("numerics")) and (other := nodes.get(name, {}).get("numerics"))
            for key in KERNELS
            if key in one and key in other and str(one[key]) != str(other[key])
        ]
        return Judgement(found, weights_difference(self.a, self.b)) if found else None

    @property
    def same_trace(self) -> bool:
        return bool(self.a.summary["trace_sha256"] == self.b.summary["trace_sha256"])

    @property
    def predicted_and_measured(self) -> tuple[RunFolder, RunFolder] | None:
        """(simulated run, real run) if one run is a simulation and the other is not, else None."""
        simulated = [run.summary["backend"] == "sim" for run in (self.a, self.b)]
        if simulated == [True, False]:
            return self.a, self.b
        return (self.b, self.a) if simulated == [False, True] else None

    @cached_property
    def is_elsewhere(self) -> bool:
        """Whether the measured run had all nodes on one machine, but the cluster has several."""
        both = self.predicted_and_measured
        if both is None or not both[1].summary.get("one_machine"):
            return False
        return not topology_of(both[0]).is_one_machine

    @property
    def elapsed_ratio(self) -> float | None:
        """The ratio of measured to predicted time, or of b's time to a's; None if undefined."""
        below, above = self.predicted_and_measured or (self.a, self.b)
        below_s = below.summary["elapsed_s"]
        return above.summary["elapsed_s"] / below_s if below_s else None

    @property
    def interval(self) -> dict[str, Any] | None:
        """The simulated run's interval for the measured time: level, low, expected, high, inside.

        "expected" is the simulated time; "inside" is whether the measured time is in the interval.
        None unless the simulated run has an interval: its topology must be calibrated.
        """
        both = self.predicted_and_measured
        told = both[0].summary.get("elapsed_interval_s") if both else None
        if both is None or told is None:
            return None
        low, high = told["low"], told["high"]
        expected_s, measured_s = (run.summary["elapsed_s"] for run in both)
        inside = low <= measured_s <= high
        return {"level": told["level"], "low": low, "expected": expected_s, "high": high, "inside": inside}

    @cached_property
    def phases(self) -> dict[str, dict[str, PredictedTime]]:
        """Node -> phase -> predicted and measured time; empty unless one run predicts the other."""
        both = self.predicted_and_measured
        return phases(*both) if both else {}

    @cached_property
    def memory(self) -> dict[str, PredictedMemory]:
        """Node -> predicted and measured memory; both are b's unless one run predicts the other."""
        return memory(*(self.predicted_and_measured or (self.b, self.b)))

    @cached_property
    def transits(self) -> dict[str, PredictedTime]:
        """Link -> total time of the messages that crossed it, from send to receipt, in both runs.

        Empty unless one run predicts the other.
        """
        both = self.predicted_and_measured
        if both is None:
            return {}
        topology = topology_of(both[0])
        return links(*both, topology) if both[0].summary["nodes"].keys() == both[1].summary["nodes"].keys() else {}

    @cached_property
    def calls(self) -> dict[str, dict[str, dict[str, CallTotals]]]:
        """Node -> operation -> {"a": totals, "b": totals} of a script's calls.

        A side that made no such call is absent.
        """
        found: dict[str, dict[str, dict[str, CallTotals]]] = {}
        for side, run in (("a", self.a), ("b", self.b)):
            totals = call_totals(run.calls) if run.summary["algorithm"] == SCRIPT else {}
            for name, node in run.summary["nodes"].items():
                for operation, one in totals.get(node["rank"], {}).items():
                    found.setdefault(name, {}).setdefault(operation, {})[side] = one
        return found

    @property
    def step_s(self) -> tuple[float, float] | None:
        """The median durations of a script's steps in a and b; None unless both have steps."""
        a, b = (step_s(run.calls) if run.summary["algorithm"] == SCRIPT else None for run in (self.a, self.b))
        return (a, b) if a is not None and b is not None else None

    @cached_property
    def metrics(self) -> MetricsCompared:
        # pandas takes half a second to import, so only comparisons pay for it.
        import pandas as pd

        keys = ["step", "node", "name", "again"]
        a, b = ((frame := run.metrics).assign(again=frame.groupby(keys[:3]).cumcount()) for run in (self.a, self.b))
        both = pd.merge(a, b, on=keys, suffixes=("_a", "_b"))
        equal = (both["value_a"] == both["value_b"]) | (both["value_a"].isna() & both["value_b"].isna())
        differing = both[~equal].sort_values("step", kind="stable")
        first = None
        if not differing.empty:
            step, node, name, a_value, b_value = differing.iloc[0][[*keys[:3], "value_a", "value_b"]]
            first = MetricDifference(int(step), str(node), str(name), float(a_value), float(b_value))
        return MetricsCompared(len(both), len(a) - len(both), len(b) - len(both), len(differing), first)

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON values, with the numbers of both runs side by side."""
        a, b = self.a.summary, self.b.summary
        metrics, first = self.metrics, None
        if metrics.first is not None:  # JSON lacks NaN and infinities
            finite = {"a": metrics.first.a, "b": metrics.first.b}
            first = metrics.first._asdict() | {side: x if math.isfinite(x) else None for side, x in finite.items()}
        return {
            **{
                side: {
                    "folder": str(run.folder),
                    **{key: run.summary[key] for key in IDENTITY},
                    "warnings": run.warnings,
                }
                for side, run in (("a", self.a), ("b", self.b))
            },
            "same_weights": self.same_weights,
            "same_trace": self.same_trace,
            "nodes_with_other_weights": self.nodes_with_other_weights,
            "numerics": self.kernels.to_dict() if self.kernels is not None else None,
            "elapsed_s": {"a": a["elapsed_s"], "b": b["elapsed_s"]}
            | {"ratio": self.elapsed_ratio, "interval": self.interval},
            **{key: {"a": a[key], "b": b[key], "equal": a[key] == b[key]} for key in COUNTS + RESULTS},
            # Runs of earlier versions lack these numbers.
            **{key: {"a": a.get(key), "b": b.get(key)} for key in BILL},
            "settings": [
                {key: value for key, value in setting._asdict().items() if value is not ABSENT}
                for setting in self.settings
            ],
            "metrics": {
                **{key: getattr(metrics, key) for key in ("in_both", "only_a", "only_b", "differ")},
                "first_difference": first,
            },
            "nodes": _beside(a["nodes"], b["nodes"], NODE_NUMBERS),
            "links": _beside(a["links"], b["links"], ("bytes", "busy_fraction")),
            "step_s": None if self.step_s is None else dict(zip("ab", self.step_s, strict=True)),
            "calls": {
                node: {
                    operation: {side: one._asdict() for side, one in sides.items()} for operation, sides in of.items()
                }
                for node, of in self.calls.items()
            },
            "phases": {
                node: {phase: pair._asdict() for phase, pair in times.items()} for node, times in self.phases.items()
            },
            "memory": {node: each._asdict() | {"ratio": each.ratio} for node, each in self.memory.items()},
            "transits": {link: pair._asdict() for link, pair in self.transits.items()},
        }


def weights_difference(a: RunFolder, b: RunFolder) -> float | None:
    """Return the norm of the final weights' difference, relative to the norm of *a*'s weights.

    Return None if a run has no weights, or if their shapes differ; infinity if any is NaN.
    """
    try:
        ours, theirs = a.weights(), b.weights()
    except UsageError:
        return None
    if {name: one.shape for name, one in ours.items()} != {name: one.shape for name, one in theirs.items()}:
        return None
    apart = sum(float((ours[name].double() - theirs[name].double()).square().sum()) for name in ours)
    whole = sum(float(one.double().square().sum()) for one in ours.values())
    if apart != apart or whole != whole:  # NaN is within no tolerance
        return float("inf")
    if whole:
        return float((apart / whole) ** 0.5)
    return float("inf") if apart else 0.0


def _beside(
    a: Mapping[str, Mapping[str, Any]], b: Mapping[str, Mapping[str, Any]], keys: tuple[str, ...]
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return {name: {key: {"a": ..., "b": ...}}} for all names; None for a missing number."""
    return {
        name: {key: {"a": a.get(name, {}).get(key), "b": b.get(name, {}).get(key)} for key in keys}
        for name in dict.fromkeys([*a, *b])
    }
