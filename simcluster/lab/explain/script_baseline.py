"""Compare a script on all ranks with the same script on one rank: times and speed-up.

Only a script knows its samples, so losses and weights are not judged: the two runs may have trained
on different samples.
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
from simcluster.runs.calls import step_s

ALONE = "alone"
"""Name of the folder of the one-rank run, inside the folder of the run with all ranks."""

SAMPLES = "Only the script knows its samples, and one rank may have had others: neither weights nor losses are judged."


@dataclass(frozen=True)
class ScriptTimes:
    """The times of a script's run: *elapsed_s* for all *steps*, and *step_s* for one.

    *compute_s* is the total computing time of the node that both runs use. *step_compute_s* is its
    computing time in a step, without the script's start-up. *loss* is the run's last loss.
    """

    elapsed_s: float
    steps: int
    step_s: float
    compute_s: float
    step_compute_s: float
    loss: float | None


@dataclass(frozen=True)
class ScriptBaseline:
    """A script's run on *nodes* nodes (*together*), and with *node* as its only rank (*alone*)."""

    run: Run
    node: str
    nodes: int
    together: ScriptTimes
    alone: ScriptTimes

    @property
    def work(self) -> float | None:
        """The ratio of all ranks' work in a step to that of *node* alone; None if there is no work.

        All ranks are assumed to compute as much as *node*. So the ratio is the number of nodes if
        each rank keeps the whole batch, and about 1 if the ranks share the batch.
        """
        if not self.alone.compute_s:
            return None
        return self.nodes * self.together.step_compute_s / self.alone.step_compute_s

    @property
    def speed_up(self) -> float | None:
        """The speed of all ranks divided by that of *node*, at the same work; None if there is
        none."""
        return None if self.work is None else self.work * self.alone.step_s / self.together.step_s

    def sentences(self) -> list[str]:
        """Return the comparison in words."""
        summary = self.run.summary
        together = self.together
        alone = self.alone
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
        """Return the comparison as JSON-compatible values."""
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
    """Run the script of *plan* on *node* alone; compare it with *done*, the run on all nodes.

    If *node* is None, use the first of the fastest workers. Raise RunError if the run on one node
    fails.
    """
    names = plan.topology.workers
    alone = node if node is not None else max(names, key=lambda name: plan.topology.device(name).flops_per_s)
    try:
        by_itself = run(on_one_node(plan.document, alone), report=False, out=done.folder / ALONE)
    except RunError as error:
        error.add_note(f"this was the run with {alone} as its only rank")
        raise
    return ScriptBaseline(done, alone, len(names), _of_run(done, alone), _of_run(by_itself, alone))


def _of_run(done: Run, node: str) -> ScriptTimes:
    summary = done.summary
    of_node = done.summary["nodes"][node]
    median_s = step_s(done.calls)
    elapsed_s = float(summary["elapsed_s"])
    steps = summary["steps"]
    compute_s = of_node["compute_s"]
    took_s = elapsed_s / max(steps, 1) if median_s is None else median_s
    of_step_s = _step_compute_s(done, of_node["rank"])
    if of_step_s is None:
        of_step_s = compute_s / max(steps, 1)
    return ScriptTimes(elapsed_s, steps, took_s, compute_s, of_step_s, summary["loss"])


def _step_compute_s(done: Run, rank: int) -> float | None:
    """Return the mean computing time of *rank* in a step; None if the trace is incomplete."""
    steps = [span for of, span in done.calls if of == rank and span.kind == "step"]
    if not steps or done.rests:
        return None
    start_s, end_s = steps[0].start_s, steps[-1].end_s
    computing = [span for of, span in done.spans if of == rank and span.kind == "compute"]
    return sum(max(0.0, min(span.end_s, end_s) - max(span.start_s, start_s)) for span in computing) / len(steps)


def on_one_node(document: Mapping[str, Any], node: str) -> dict[str, Any]:
    """Return the resolved experiment *document* on *node* alone, simulated and without faults.

    All other workers become hosts that only forward messages.
    """
    found = copy.deepcopy(dict(document))
    nodes = found["topology"]["nodes"]
    for name, block in nodes.items():
        if name != node and (block or {}).get("kind", "worker") == "worker":
            nodes[name] = {"kind": "host"}
    for key in ("checkpoint", "observe", "regroup", "evaluate_consensus"):
        found.pop(key, None)
    return found | {"faults": [], "world": None, "backend": "sim"}


def _took(one: ScriptTimes) -> str:
    steps = words.plural(one.steps, "step")
    return f"{words.seconds(one.elapsed_s)} for {steps}, {words.seconds(one.step_s)} for one of them"
