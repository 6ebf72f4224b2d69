"""Compare an experiment with one node on the same samples: speed-up and weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from simcluster.errors import Problem, raise_all
from simcluster.experiment.read.experiment import Experiment
from simcluster.experiment.read.read import read_experiment
from simcluster.experiment.run import run
from simcluster.lab.explain.script_baseline import ScriptBaseline, on_one_node, script_baseline
from simcluster.process.intra_op import one_thread
from simcluster.results import Run
from simcluster.runs import words
from simcluster.scripts.run_script import NAME as SCRIPT
from simcluster.spelling import nearest
from simcluster.topology.model.duration import expected_s
from simcluster.workloads import train_alone

ROUNDING = 1e-5
"""Limit on a relative difference that comes from summing 32-bit numbers in a different order."""


@dataclass(frozen=True)
class WeightDistance:
    """The distance of a run's weights from those of one node.

    *same* says whether all bits are equal. *most* is the largest difference, and *relative* is its
    ratio to the largest weight. *loss* and *accuracy* are those of the one node, on held-out
    samples.
    """

    same: bool
    most: float
    relative: float
    loss: float | None
    accuracy: float | None


@dataclass(frozen=True)
class Baseline:
    """A *run* on *nodes* nodes, compared with *node* alone.

    Alone, the node takes *alone_s* for the same *steps* with the same *samples* per step.
    *possible* is the speed-up if all devices computed all the time, without communication.
    """

    run: Run
    node: str
    nodes: int
    steps: int
    samples: int
    alone_s: float
    possible: float
    weights: WeightDistance | None

    @property
    def together_s(self) -> float:
        return float(self.run.summary["elapsed_s"])

    @property
    def speed_up(self) -> float:
        return self.alone_s / self.together_s

    @property
    def efficiency(self) -> float:
        """The speed-up divided by the number of nodes."""
        return self.speed_up / self.nodes

    def sentences(self) -> list[str]:
        """Return the comparison in words."""
        summary = self.run.summary
        found = [
            f"{summary['algorithm']} on {words.plural(self.nodes, 'node')} of {summary['topology']} takes "
            f"{words.seconds(self.together_s)} for {words.plural(self.steps, 'step')} of {self.samples:,} samples; "
            f"{self.node} alone takes {words.seconds(self.alone_s)}.",
            f"The speed-up is {words.number(self.speed_up)}, so the efficiency is {words.share(self.efficiency)}; the "
            f"devices together could be {words.number(self.possible)} times as fast as {self.node}: this is "
            f"{words.share(self.speed_up / self.possible)} of that.",
        ]
        if self.speed_up < 1:
            found.append(f"It is slower than one node: `simcluster explain {self.run.folder}` says why.")
        return [*found, *self._of_weights()]

    def _of_weights(self) -> list[str]:
        summary = self.run.summary
        found = self.weights
        if found is None:
            return ["Nothing was computed, so there are no weights to compare."]
        if found.same:
            return ["The weights are the same, to the bit."]
        most = (
            f"no weight differs by more than {words.number(found.most)}, {words.number(found.relative)} of the largest"
        )
        is_rounding = found.relative < ROUNDING
        told = [f"The weights are the same up to rounding: {most}." if is_rounding else f"The weights differ: {most}."]
        if found.accuracy is not None and summary["accuracy"] is not None:
            both = words.accuracy(summary["accuracy"]), words.accuracy(found.accuracy)
            told.append(f"Held-out accuracy is {both[0]}, that of one node {both[1]}.")
        elif found.loss is not None and summary["loss"] is not None:
            told.append(
                f"The held-out loss is {words.number(summary['loss'])}, that of one node {words.number(found.loss)}."
            )
        return told

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON-compatible values."""
        return {
            "run": str(self.run.folder),
            "node": self.node,
            "nodes": self.nodes,
            "steps": self.steps,
            "samples_per_step": self.samples,
            "together_s": self.together_s,
            "alone_s": self.alone_s,
            "speed_up": self.speed_up,
            "possible_speed_up": self.possible,
            "efficiency": self.efficiency,
            "weights": None if self.weights is None else asdict(self.weights),
            "sentences": self.sentences(),
        }


def baseline(
    experiment: Any, *, node: str | None = None, out: str | Path | None = None, **changes: Any
) -> Baseline | ScriptBaseline:
    """Run *experiment* in the simulator, then train on its samples, or run its script, on one node.

    *node* is the fastest worker if None. *changes* are other arguments of `simcluster.run`; *out*
    is the folder of the run. Raise UsageError for an experiment that one node cannot repeat.
    """
    plan = read_experiment(experiment, backend="sim", **changes)
    _check(plan, node)
    if plan.algorithm_name == SCRIPT:
        return script_baseline(plan, run(experiment, backend="sim", out=out, report=False, **changes), node)
    rates = _rates(plan)
    alone = node if node is not None else max(rates, key=rates.__getitem__)
    sizes = plan.workload.sizes(len(rates))
    done = run(experiment, backend="sim", out=out, report=False, **changes)
    with TemporaryDirectory(prefix="simcluster-baseline-") as home:
        told = _alone(plan.document, alone, sum(sizes))
        alone_s = float(run(told, report=False, out=Path(home) / "run").summary["elapsed_s"])
    weights = None if plan.numerics == "none" else _compared(plan, done)
    possible = sum(rates.values()) / rates[alone]
    return Baseline(done, alone, len(rates), plan.steps, sum(sizes), alone_s, possible, weights)


def _check(plan: Experiment, node: str | None) -> None:
    """Raise UsageError, with all problems, if one node cannot train on the samples of *plan*."""
    problems = []
    names = plan.topology.workers
    if node is not None and node not in names:
        problems.append(Problem("--node", repr(node), f"a worker of the topology: {nearest(node, names)}"))
    if plan.algorithm_name == SCRIPT:
        if plan.worlds:
            problems.append(Problem("world", words.plural(len(plan.worlds), "world"), "none: world=[]"))
        if plan.document["faults"]:
            problems.append(Problem("faults", words.plural(len(plan.document["faults"]), "fault"), "none: faults=[]"))
        raise_all(problems)
        return
    for key in sorted(plan.document["stop"].keys() & {"patience", "time"}):
        found = str(plan.document["stop"][key])
        problems.append(Problem(f"stop.{key}", found, "only steps or epochs: the samples must be known"))
    if "batch_size" not in plan.document["workload"]:
        problems.append(Problem("workload", "no setting batch_size", "one: one node gets the samples of all"))
    if plan.algorithm_settings.get("server_trains") is False:
        problems.append(Problem("server_trains", "false", "true: one node trains on the samples of all ranks"))
    raise_all(problems)


def _rates(plan: Experiment) -> dict[str, float]:
    """Return worker -> its rate, the number of gradients of the same batch per second."""
    names = plan.topology.workers
    replica = plan.workload.replica(0, len(names), plan.seed, plan.steps, numerics="none")
    cost = replica.gradient_cost(next(replica.batches()))
    return {name: 1 / expected_s(plan.topology.device(name), cost) for name in names}


def _alone(document: Mapping[str, Any], node: str, samples: int) -> dict[str, Any]:
    """Return the experiment of *document* on *node* alone, without numerics.

    All other workers become hosts that only forward messages.
    """
    found = on_one_node(document, node)
    found["workload"] = {**found["workload"], "batch_size": samples}
    return found | {
        "algorithm": {"name": "all_reduce_dp"},
        "numerics": "none",
        "check_memory": False,
    }


def _compared(plan: Experiment, done: Run) -> WeightDistance:
    """Compare the weights of *done* with those of one process that trains on all ranks' batches."""
    size = len(plan.topology.workers)
    with one_thread():
        alone = train_alone(plan.workload, size, plan.seed, plan.steps)
        replica = plan.workload.replica(0, size, plan.seed, plan.steps)
        judged = replica.evaluate_weights(alone)
    ours = list(done.weights().values())
    most = max(float((a.double() - b.double()).abs().max()) for a, b in zip(ours, alone, strict=True))
    largest = max(float(weights.double().abs().max()) for weights in alone)
    same = all(torch.equal(a, b) for a, b in zip(ours, alone, strict=True))
    return WeightDistance(same, most, most / largest if largest else 0.0, judged.get("loss"), judged.get("accuracy"))
