"""Write a distributed-training algorithm once; simulate it on the cluster you don't have; run it on the one you do.

An algorithm's author needs five names: `Transport`, `Replica`, `ANY`, `Cost` and `pack`. Whoever runs one needs
`run`. Names are imported when first used, so `import simcluster` stays quick.
"""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # typing's own takes a while to import, in which a Ctrl-C would still be answered by Python
if TYPE_CHECKING:
    from typing import Any

    from simcluster.errors import (
        Deadlock,
        NeverFinished,
        NodeFailed,
        PeerLost,
        RunError,
        SimclusterError,
        UsageError,
    )
    from simcluster.experiment.fault_plan import faults
    from simcluster.experiment.resume import resume
    from simcluster.experiment.run import run
    from simcluster.experiment.sweep import sweep
    from simcluster.experiment.whatif import whatif
    from simcluster.payload import Message, Payload, pack
    from simcluster.replaying.replay import replay
    from simcluster.results.compare import compare
    from simcluster.results.folder import Run, load_run
    from simcluster.results.static.save import save_figure
    from simcluster.results.sweep_folder import load_sweep
    from simcluster.transport import ANY, FREE, Cost, Transport
    from simcluster.verify import verify
    from simcluster.workloads import Replica, Workload

_HOME = {
    "ANY": "transport",
    "Cost": "transport",
    "Deadlock": "errors",
    "FREE": "transport",
    "Message": "payload",
    "NeverFinished": "errors",
    "NodeFailed": "errors",
    "Payload": "payload",
    "PeerLost": "errors",
    "Replica": "workloads",
    "Run": "results.folder",
    "RunError": "errors",
    "SimclusterError": "errors",
    "Transport": "transport",
    "UsageError": "errors",
    "Workload": "workloads",
    "compare": "results.compare",
    "faults": "experiment.fault_plan",
    "load_run": "results.folder",
    "load_sweep": "results.sweep_folder",
    "pack": "payload",
    "replay": "replaying.replay",
    "resume": "experiment.resume",
    "run": "experiment",
    "save_figure": "results.static.save",
    "sweep": "experiment.sweep",
    "whatif": "experiment.whatif",
}

__all__ = [
    "ANY",
    "FREE",
    "Cost",
    "Deadlock",
    "Message",
    "NeverFinished",
    "NodeFailed",
    "Payload",
    "PeerLost",
    "Replica",
    "Run",
    "RunError",
    "SimclusterError",
    "Transport",
    "UsageError",
    "Workload",
    "compare",
    "faults",
    "load_run",
    "load_sweep",
    "pack",
    "replay",
    "resume",
    "run",
    "save_figure",
    "sweep",
    "verify",
    "whatif",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name == "verify":  # a package that can be called: it must stay what `import simcluster.verify` finds here
        return importlib.import_module("simcluster.verify")
    if name not in _HOME:
        raise AttributeError(f"module 'simcluster' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"simcluster.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
