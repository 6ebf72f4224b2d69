"""One typical mistake of a new user, and the rule by which its answer is judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

NAMES, ALGORITHM, MODEL, PYTHON = "names", "own algorithm", "own model and data", "Python API and installation"

EXPERIMENT = """name: mine
topology: smolcluster
algorithm: {name: edp}
workload: {name: mnist_mlp}
stop: {steps: 2}
"""
TOPOLOGY = """name: three
nodes:
  a: {device: mac-mini-m4}
  b: {device: mac-mini-m4}
  c: {device: raspberry-pi-5}
links:
  - {between: [a, b], bandwidth: 1 Gbps, latency: 1 ms}
  - {between: [b, c], bandwidth: 1 Gbps, latency: 1 ms}
"""
OWN = """name: own
topology: smolcluster
algorithm: {path: algo.py:algo}
workload: {name: quadratic}
stop: {steps: 2}
"""
OWN_MODEL = """name: own
topology: smolcluster
algorithm: {name: all_reduce_dp}
workload: {path: work.py:make}
stop: {steps: 2}
"""
RUN = ("run", "e.yaml", "--no-report", "--out", "out")


@dataclass(frozen=True)
class Row:
    """A mistake, called *name*, of a *group*: the *files*, and a *command* or a *script* in Python.

    The answer is good if the exit code is *code*, the text has *place* (where the mistake is) and all of *says*; a
    request that is refused (code 2) leaves no folder. *area* is the part of the project on which the answer depends.
    """

    name: str
    group: str
    says: tuple[str, ...]
    place: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = RUN
    script: str = ""
    code: int = 2
    area: str = "start"
    good: bool = True
    """Else the answer is only passable: it says the truth, but no place or no remedy."""


def experiment(name: str, old: str, new: str, place: str, *says: str) -> Row:
    """Return the row of an experiment with *new* in place of *old*."""
    assert old in EXPERIMENT, old
    return Row(name, NAMES, says, place, {"e.yaml": EXPERIMENT.replace(old, new)})


def topology(name: str, old: str, new: str, place: str, *says: str) -> Row:
    """Return the row of a topology with *new* in place of *old*."""
    assert old in TOPOLOGY, old
    return Row(name, NAMES, says, place, {"t.yaml": TOPOLOGY.replace(old, new)}, ("topology", "check", "t.yaml"))


def typed(
    name: str, words: tuple[str, ...], place: str, *says: str,
    group: str = NAMES, own: str = "", code: int = 2, area: str = "start",
) -> Row:  # fmt: skip
    """Return the row of a command line for the shipped quickstart; the text *own*, if given, is in own.py."""
    files = {"own.py": own} if own else {}
    return Row(name, group, says, place, files, ("run", "quickstart", "--no-report", *words), code=code, area=area)


def algorithm(name: str, body: str, place: str, *says: str, code: int = 1, head: str = "", area: str = "start") -> Row:
    """Return the row of an algorithm with *body* below its loop; *head* begins its file."""
    text = f"{head}import asyncio\n\nfrom simcluster.algorithms import steps\n\n\nasync def algo(node, replica):\n"
    text += f"    async for step, batch in steps(replica):\n        {body}\n"
    return Row(name, ALGORITHM, says, place, {"e.yaml": OWN, "algo.py": text}, code=code, area=area)


def model(name: str, made: str, place: str, *says: str, code: int = 2, area: str = "start") -> Row:
    """Return the row of a workload whose function returns *made*."""
    text = (
        "import torch\nfrom torch import nn\n\nfrom simcluster import Workload\n"
        "from simcluster.workloads import sgd\n\n"
        "x, y = torch.zeros(400, 4), torch.zeros(400, dtype=torch.long)\nloss = nn.functional.cross_entropy\n"
        f"rest = {{'loss': loss, 'train': (x, y), 'batch_size': 4}}\n\n\ndef make():\n    return {made}\n"
    )
    return Row(name, MODEL, says, place, {"e.yaml": OWN_MODEL, "work.py": text}, code=code, area=area)
