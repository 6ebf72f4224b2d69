"""One trial, drawn from a seed: a command, its experiment, and the moment of the Ctrl-C."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

ALGORITHMS: dict[str, dict[str, Any]] = {
    "all_reduce_dp": {},
    "sync_ps": {},
    "edp": {"max_staleness": 4},
    "d_psgd": {},
    "local_sgd": {"interval": 3},
    "pipeline": {},
    "zero": {},
}
WITHOUT_CHECKPOINTS = ("edp",)
"""Algorithms whose endless runs never write a checkpoint."""

MOMENTS = {
    "run": ("start", "import", "training", "checkpoint", "writing"),
    "replace": ("writing",),
    "resume": ("import", "checkpoint"),
    "sweep": ("import", "workers", "point", "table"),
}
"""Command -> possible moments of the Ctrl-C. "replace" runs into the folder of an earlier run."""

START_S, IMPORT_S = 0.15, 4.0
"""CPU seconds until a command reaches our first line, and at most until its run begins."""

ENDLESS, FEW = 1_000_000, 4
NODES = ("a", "b", "c")


@dataclass(frozen=True)
class Case:
    """One trial. *at*, from 0 to 1, selects a time within *moment*.

    If *again_s* is not None, a second Ctrl-C follows the first one after that time.
    """

    seed: int
    backend: str
    command: str
    algorithm: str
    moment: str
    at: float
    checkpoint: bool
    report: bool
    terminal: bool
    again_s: float | None

    @property
    def ends(self) -> bool:
        """Whether training ends before the Ctrl-C comes."""
        return self.moment in ("writing", "table")

    @property
    def is_own(self) -> bool:
        """Whether the algorithm comes from a user's file, which signals the beginning of
        training.
        """
        return self.moment == "training"

    def words(self) -> str:
        """Return a description of the case."""
        drawn = [self.command, self.backend, self.algorithm, f"at {self.moment} {self.at:.2f}"]
        drawn += [name for name in ("checkpoint", "report", "terminal") if getattr(self, name)]
        return ", ".join([*drawn, *([f"again after {self.again_s:.2f} s"] if self.again_s is not None else [])])


def draw(seed: int, backend: str, attempt: int = 0) -> Case:
    """Return the case of *seed*. Each *attempt* draws a different one."""
    dice = random.Random(f"{seed} {backend} {attempt}")
    command = dice.choices(list(MOMENTS), (5, 1, 2, 2))[0]  # the command "run" has the most moments
    moment = dice.choice([*MOMENTS[command], *(["nodes"] if command == "run" and backend != "sim" else [])])
    keeps = command == "resume" or moment == "checkpoint"
    algorithm = dice.choice([name for name in ALGORITHMS if not (keeps and name in WITHOUT_CHECKPOINTS)])
    return Case(
        seed, backend, command, algorithm, moment,
        at=dice.random(),
        checkpoint=keeps or (moment != "training" and dice.random() < 0.3),
        report=dice.random() < 0.3,
        terminal=dice.random() < 0.4,
        again_s=dice.uniform(0.0, 2.0) if dice.random() < 0.3 else None,
    )  # fmt: skip


def experiment(case: Case) -> dict[str, Any]:
    """Return the experiment of *case*: three nodes, a small model, few or endless steps."""
    links = [(a, b) for index, a in enumerate(NODES) for b in NODES[index + 1 :]]
    name = {"path": f"own.py:{case.algorithm}_own"} if case.is_own else {"name": case.algorithm}
    found: dict[str, Any] = {
        "name": "interrupted",
        "topology": {
            "name": "three",
            "nodes": {node: {"device": "mac-mini-m4-pro", "compute": "auto"} for node in NODES},
            "links": [{"between": list(link), "type": "thunderbolt-5"} for link in links],
        },
        "algorithm": {**name, **ALGORITHMS[case.algorithm]},
        "workload": {"name": "mnist_mlp", "hidden": 8, "batch_size": 4},
        "stop": {"steps": FEW if case.ends else ENDLESS},
        "seed": case.seed,
    }
    return found | ({"checkpoint": {"every": 2 if case.ends else 5}} if case.checkpoint else {})


def own_code(case: Case) -> str:
    """Return the source of an algorithm that writes a file when its training begins."""
    settings = ALGORITHMS[case.algorithm]
    parameters = "".join(f", {name}: int = {value}" for name, value in settings.items())
    passed = "".join(f", {name}={name}" for name in settings)
    return (
        f"from pathlib import Path\n\nfrom simcluster.algorithms import {case.algorithm}\n\n\n"
        f"async def {case.algorithm}_own(node, replica{', *' if parameters else ''}{parameters}):\n"
        f"    if node.rank == 1:\n        Path(__file__).with_name('training').touch()\n"
        f"    return await {case.algorithm}(node, replica{passed})\n"
    )


def arguments(case: Case) -> list[str]:
    """Return the arguments with which `simcluster` runs *case* into the folder `out`."""
    report = [] if case.report else ["--no-report"]
    if case.command == "resume":
        return ["resume", "out", "--backend", case.backend, *report]
    common = ["experiment.yaml", "--backend", case.backend, "--out", "out", *report]
    if case.command == "sweep":
        steps = f"{FEW},{FEW + 1}" if case.ends else f"{FEW},{ENDLESS},{ENDLESS + 1}"
        return ["sweep", *common, "--set", f"stop.steps={steps}", "--jobs", "2"]
    return ["run", *common]
