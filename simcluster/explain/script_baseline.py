"""A script against itself with one rank: what each takes, and the speed-up by what the ranks compute.

Only a script knows its samples, so nothing is said of losses and weights that would need the same ones.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simcluster.errors import RunError
from simcluster.experiment.read.experiment import Experiment
from simcluster.experiment.run import run
from simcluster.results import Run
from simcluster.runs import words

ALONE = "alone"
"""Where the run of one rank is, in the folder of that of all."""

SAMPLES = "Only the script knows its samples, and one rank may have had others: neither weights nor losses are judged."


@dataclass(frozen=True)
class OneScript:
    """What a run of a script took: *elapsed_s* for *steps*; *compute_s* of the node that also works alone.

    *loss* is the last that its first rank logged, if it did.
    """

    elapsed_s: float
    steps: int
    compute_s: float
    loss: float | None

    @property
    def step_s(self) -> float:
        return self.elapsed_s / max(self.steps, 1)

    @property
    def step_compute_s(self) -> float:
        return self.compute_s / max(self.steps, 1)


@dataclass(frozen=True)
class ScriptBaseline:
    """A *run* of a script on *nodes* nodes, *together*, and *node* *alone*, the only rank of the same script."""

    run: Run
    node: str
    nodes: int
    together: OneScript
    alone: OneScript

    @property
    def work(self) -> float | None:
        """How much more a step of all ranks computes than one of *node* alone; None if computing takes no time.

        That is if all compute as *node* does: the number of nodes if a rank keeps its batch, about 1 if they share it.
        """
        if not self.alone.compute_s:
            return None
        return self.nodes * self.together.step_compute_s / self.alone.step_compute_s

    @property
    def speed_up(self) -> float | None:
        """How much faster all ranks compute what there is to compute."""
        return None if self.work is None else self.work * self.alone.step_s / self.together.step_s

    def sentences(self) -> list[str]:
        """Return the comparison in words."""
        summary, together, alone = self.run.summary, self.together, self.alone
        cluster = f"{words.plural(self.nodes, 'node')} of {summary['topology']}"
        found = [
            f"{summary['name']} on {cluster} takes {_took(together)}. "
            f"With {self.node} as its only rank it takes {_took(alone)}, in {self.run.folder / ALONE}."
        ]
        if self.work is None or self.speed_up is None:
            found.append("Computing takes no time (`cost: free`), so there is no speed-up.")
        else:
            found.append(
                f"{self.node} computes for {words.seconds(together.step_compute_s)} of a step, alone for "
                f"{words.seconds(alone.step_compute_s)}. If all ranks compute as much, a step of theirs has "
                f"{words.number(self.work)} times the work: the speed-up is {words.number(self.speed_up)}, and the "
                f"efficiency is {words.share(self.speed_up / self.nodes)}."
            )
            if self.speed_up < 1:
                found.append(f"It is slower than one node: `simcluster explain {self.run.folder}` says why.")
        if together.loss is not None and alone.loss is not None:
            found.append(f"The last loss is {words.number(together.loss)}, that of one {words.number(alone.loss)}.")
        return [*found, SAMPLES]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON has it."""
        found = {
            "run": str(self.run.folder),
            "alone_run": str(self.run.folder / ALONE),
            "node": self.node,
            "nodes": self.nodes,
        }
        for name, one in (("together", self.together), ("alone", self.alone)):
            found |= {f"{name}_s": one.elapsed_s, f"{name}_steps": one.steps, f"{name}_step_s": one.step_s}
            found |= {f"{name}_compute_s": one.compute_s, f"{name}_loss": one.loss}
        efficiency = None if self.speed_up is None else self.speed_up / self.nodes
        numbers = {"work_of_a_step": self.work, "speed_up": self.speed_up, "efficiency": efficiency}
        return {**found, **numbers, "sentences": self.sentences()}


def script_baseline(plan: Experiment, done: Run, node: str | None) -> ScriptBaseline:
    """Compare *done*, a run of the script of *plan*, with one of *node* alone, by default the first of the fastest."""
    names = plan.topology.workers
    devices = {name: plan.topology.nodes[name].device for name in names}
    rates = {name: device.flops_per_s for name, device in devices.items() if device is not None}
    alone = node if node is not None else max(rates, key=rates.__getitem__)
    try:
        by_itself = run(on_one_node(plan.document, alone), report=False, out=done.folder / ALONE)
    except RunError as error:
        error.add_note(f"this was the run with {alone} as its only rank")
        raise
    return ScriptBaseline(done, alone, len(names), _of_run(done, names[0], alone), _of_run(by_itself, alone, alone))


def _of_run(done: Run, first: str, node: str) -> OneScript:
    summary, metrics = done.summary, done.metrics
    losses = metrics[(metrics["name"] == "loss") & (metrics["node"] == first)]["value"]
    loss = float(losses.iloc[-1]) if len(losses) else None
    return OneScript(float(summary["elapsed_s"]), summary["steps"], summary["nodes"][node]["compute_s"], loss)


def on_one_node(document: Mapping[str, Any], node: str) -> dict[str, Any]:
    """Return the resolved experiment *document* on *node* alone, without faults: all other workers only forward."""
    found = copy.deepcopy(dict(document))
    nodes = found["topology"]["nodes"]
    for name, block in nodes.items():
        if name != node and (block or {}).get("kind", "worker") == "worker":
            nodes[name] = {"kind": "host"}
    for key in ("checkpoint", "observe", "regroup", "evaluate_consensus"):
        found.pop(key, None)
    return found | {"faults": [], "backend": "sim"}


def _took(one: OneScript) -> str:
    return f"{words.seconds(one.elapsed_s)}: {words.plural(one.steps, 'step')} of {words.seconds(one.step_s)}"
