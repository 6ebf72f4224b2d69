"""Write a distributed-training algorithm once; simulate it on the cluster you don't have; run it on the one you do.

To write an algorithm, use five names: `Transport`, `Replica`, `ANY`, `Cost` and `pack`. To run one,
use `run`. Each name is imported when it is first used, so `import simcluster` stays quick.
"""

from __future__ import annotations

from simcluster.moved import tell_of_moves
from simcluster.version import __version__ as __version__

tell_of_moves()

# typing.TYPE_CHECKING is not used here: importing typing takes a while, and until InterruptHandler
# is installed a Ctrl-C prints a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from simcluster.errors import Deadlock, NeverFinished, NodeFailed, PeerLost, RunError, SimclusterError, UsageError
    from simcluster.experiment.run import resume, run
    from simcluster.fault_plans.plan import faults
    from simcluster.lab.replays.run import replay
    from simcluster.lab.reports.export import save_figure
    from simcluster.lab.sweeps import sweep
    from simcluster.lab.verify import verify
    from simcluster.lab.what_if.run import whatif
    from simcluster.payload import Message, Payload, pack
    from simcluster.results import Run, compare, load_run, load_sweep
    from simcluster.scripts.metrics_log import log
    from simcluster.topology import Topology
    from simcluster.transport import ANY, FREE, Cost, Transport
    from simcluster.workloads import Replica, Workload

_HOME = {
    name: module
    for module, names in {
        "errors": "Deadlock NeverFinished NodeFailed PeerLost RunError SimclusterError UsageError",
        "experiment": "run",
        "experiment.run": "resume",
        "fault_plans.plan": "faults",
        "payload": "Message Payload pack",
        "lab.replays.run": "replay",
        "lab.reports.export": "save_figure",
        "scripts.metrics_log": "log",
        "results": "Run compare load_run load_sweep",
        "lab.sweeps": "sweep",
        "topology": "Topology",
        "transport": "ANY Cost FREE Transport",
        "lab.what_if.run": "whatif",
        "workloads": "Replica Workload",
    }.items()
    for name in names.split()
}

__all__ = ["ANY", "FREE", "Cost", "Message", "Payload", "Replica", "Topology", "Transport", "Workload", "pack"]
__all__ += ["Run", "compare", "faults", "load_run", "load_sweep", "replay", "resume", "run", "save_figure", "sweep"]
__all__ += ["Deadlock", "NeverFinished", "NodeFailed", "PeerLost", "RunError", "SimclusterError", "UsageError"]
__all__ += ["log", "verify", "whatif"]


def __getattr__(name: str) -> Any:
    import importlib

    # The module simcluster.lab.verify is itself callable, so return the module, not a name in it.
    if name == "verify":
        return importlib.import_module("simcluster.lab.verify")
    if name not in _HOME:
        meant = importlib.import_module("simcluster.spelling").closest(name, __all__, 0.7)
        hint = f"; did you mean {meant!r}?" if meant else ""
        raise AttributeError(f"module 'simcluster' has no attribute {name!r}{hint}")
    try:
        module = importlib.import_module(f"simcluster.{_HOME[name]}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        from simcluster.process.installed import NO_TORCH

        raise ModuleNotFoundError(NO_TORCH, name="torch") from None
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
