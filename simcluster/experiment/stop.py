"""The stop of a run: after steps or epochs of every rank, or at a time."""

from __future__ import annotations

from typing import Any

from simcluster.documents.reading import Reading
from simcluster.documents.user_code import calling
from simcluster.errors import nearest
from simcluster.experiment.host import check_host
from simcluster.limits import MOST_STEPS
from simcluster.topology import Topology
from simcluster.units import UnitError, parse_latency, write_latency
from simcluster.workloads import Replica, Workload
from simcluster.workloads.workload import Numerics

STOP_KEYS = ("steps", "epochs", "time")


def read_stop(reading: Reading) -> tuple[dict[str, Any], float | None]:
    """(the block resolved, its time in seconds or None)."""
    stop = reading.document.data.get("stop", {"epochs": 1})
    if not isinstance(stop, dict):
        reading.bad(("stop",), "a mapping: steps or epochs, and time")
        return {"epochs": 1}, None
    for key in stop:
        if key not in STOP_KEYS:
            reading.bad(("stop", key), nearest(str(key), STOP_KEYS), "unknown key", at_key=True)
    if ("steps" in stop) == ("epochs" in stop):
        reading.bad(("stop",), "either steps or epochs")
    if "steps" in stop and not _is_number(stop["steps"], int):
        reading.bad(("stop", "steps"), f"a whole number of at least 1 and at most {MOST_STEPS}")
    if "epochs" in stop and not _is_number(stop["epochs"], (int, float)):
        reading.bad(("stop", "epochs"), f"a number above 0 and at most {MOST_STEPS}")
    time_s = _time_s(reading, stop)
    resolved = {key: stop[key] for key in ("steps", "epochs") if key in stop}
    return resolved | ({"time": write_latency(time_s)} if time_s else {}), time_s


def count_steps(
    reading: Reading,
    workload: Workload | None,
    cluster: Topology | None,
    seed: int,
    stop: dict[str, Any],
    numerics: Numerics,
    backend: str,
) -> int:
    """The steps of every rank; asks for one replica, so that data which cannot be dealt out is found now.

    So is work that cannot do without values, if there are to be none, or that is too large for this machine.
    """
    if workload is None or cluster is None or reading.problems:
        return 1
    steps, epochs = stop.get("steps"), stop.get("epochs")
    size = len(cluster.workers)

    def try_one() -> Replica:
        if numerics == "real":
            # A simulator has all replicas in this process; the nodes of other backends may be elsewhere.
            check_host(workload, size if backend == "sim" else 1)
        replica = workload.replica(0, size, seed, steps, epochs, numerics=numerics)
        if numerics == "none":
            replica.gradient_cost(next(replica.batches()))
            replica.apply_cost()
        return replica

    replica: Replica | None = reading.collect(lambda: calling(workload.model, try_one, "a model that works"))
    if replica is None:
        return 1
    if replica.steps > MOST_STEPS:
        reading.bad(("stop", "epochs"), f"at most {MOST_STEPS} steps", f"{epochs}, which is {replica.steps} steps")
    return replica.steps


def _time_s(reading: Reading, stop: dict[str, Any]) -> float | None:
    if stop.get("time") is None:
        return None
    try:
        time_s = parse_latency(stop["time"])
    except UnitError as error:
        reading.bad(("stop", "time"), error.expected, error.found)
        return None
    if time_s == 0:
        reading.bad(("stop", "time"), "a time above zero")
    return time_s


def _is_number(value: Any, kinds: type | tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool) and 0 < value <= MOST_STEPS  # type: ignore[operator]
