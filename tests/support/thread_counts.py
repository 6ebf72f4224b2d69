"""How many threads OpenMP and MKL would give a kernel in the calling thread, asked of those libraries themselves; and
an experiment of own code that notes it wherever a run computes.

torch's own answer would not do: asking torch is what sets the number.
"""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from torch import nn

from simcluster import Replica, Transport, Workload
from simcluster.runs.record import NodeRecord
from simcluster.runs.recorder import Recorder
from simcluster.transport import Cost
from simcluster.workloads import sgd

FUNCTIONS = ("omp_get_max_threads", "mkl_serv_get_max_threads", "mkl_get_max_threads")
"""The last two are MKL's, linked into torch or next to it. Each takes nothing."""

LARGE = Cost(1e9)  # enough for a thread of the simulator's


def _libraries() -> list[ctypes.CDLL]:
    """Those that this process has loaded with torch."""
    folder = Path(torch.__file__).parent / "lib"
    files = [file for pattern in ("*omp*", "*mkl_rt*", "*torch_cpu.*") for file in sorted(folder.glob(pattern))]
    return [ctypes.CDLL(None), *(ctypes.CDLL(str(file)) for file in files)]


_ASKED = [
    function
    for name in FUNCTIONS
    if (function := next((getattr(lib, name) for lib in _libraries() if hasattr(lib, name)), None)) is not None
]


def most_threads() -> int:
    """The largest number that any of them has for the calling thread."""
    assert _ASKED, "a torch whose libraries cannot be asked"
    return max(int(function()) for function in _ASKED)


def make_workload() -> Workload:
    """Its data say in how many threads they were made."""
    inputs = torch.full((8, 2), float(most_threads()))
    return Workload(
        lambda: nn.Linear(2, 2), nn.functional.cross_entropy, (inputs, torch.zeros(8, dtype=torch.int64)), sgd(0.1), 4
    )


async def counting(node: Transport, replica: Replica) -> None:
    """Note the number in the loop's thread, in the one that computes, and where the data were made."""
    loop = most_threads()
    compute = await node.compute(MethodType(lambda _: most_threads(), replica), cost=LARGE)
    batch = next(iter(replica.batches()))
    node.record(step=1, loop=loop, compute=compute, data=float(batch.inputs[0, 0]))


async def program(node: Any, recorder: Recorder, config: str) -> NodeRecord:
    """The same without an experiment, as a node's program."""
    compute = await node.compute(most_threads, cost=LARGE)
    node.record(step=1, loop=most_threads(), compute=compute)
    return recorder.finish(json.dumps(config))


def experiment(**keys: Any) -> dict[str, Any]:
    here = Path(__file__)
    return {
        "topology": {"nodes": {"node": {"device": "raspberry-pi-5", "address": "127.0.0.1"}}},
        "algorithm": {"path": f"{here}:counting"},
        "workload": {"path": f"{here}:make_workload"},
        "stop": {"steps": 1},
        **keys,
    }
