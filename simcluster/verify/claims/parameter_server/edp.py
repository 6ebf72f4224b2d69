"""Claims about `edp`, and its references that do not depend on arrival."""

from __future__ import annotations

from simcluster.verify.claim import Claim, Identity, Settings, Variant, Weights
from simcluster.verify.faults import SERVED
from simcluster.verify.naive import account, rounds, walk
from simcluster.workloads import Workload, train_alone


def one_worker(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """One rank alone trains ordinarily; so does one worker that pulls every time from a server that does not train."""
    if size == 1:
        return [train_alone(workload, 1, seed, steps)]
    if size > 2 or settings["server_trains"] or settings.get("pull_interval", 1) > 1:
        return []
    worker = workload.replica(1, size, seed, steps)
    walk(worker, worker.batches(), steps)
    return [worker.parameters] * 2


def payload_bytes(size: int, model_bytes: int, steps: int, settings: Settings) -> int:
    """Gradients up with every batch, weights down for some of them; or weights up and down once per round."""
    if settings["push"] == "weights":
        return 2 * (size - 1) * rounds(steps, settings["pull_interval"]) * model_bytes
    pulls: int = steps // settings["pull_interval"]
    return (size - 1) * (steps + pulls) * model_bytes


def staleness_bound(size: int, settings: Settings) -> float:
    """Between a pull and its push, every other rank may push twice: one round ends, and another begins.

    Gradients pushed without a pull in between are staler, by the number of pushes meanwhile.
    """
    rounds_apart = 1 if settings["push"] == "weights" else settings["pull_interval"]
    return 2.0 * (size - 1) * rounds_apart


CLAIM = Claim(
    paper="Dean et al. 2012, section 4.1; Zhang, Gupta, Lian and Liu 2016, sections 2 and 3",
    order_free=False,
    reference=one_worker,
    variants={
        "pull_interval": 3,
        "max_staleness": 0,
        "damping": "inverse",
        "push": Variant("weights", given={"pull_interval": 2}),
        "compression": "int8",
        "server_trains": False,
    },
    identities=(
        Identity({"max_staleness": 10**6}, "edp", exact=True, why="a bound that is never reached"),
        Identity({}, "ssp", {"staleness": None}, exact=True, why="no bound on the lead"),
        Identity({}, "softsync", {"n": 3}, exact=True, why="one gradient an update", sizes=(3,)),
        Identity({}, "k_async", {"k": 1}, exact=True, why="one gradient an update"),
    ),
    payload_bytes=payload_bytes,
    contributions=account,
    staleness_bound=staleness_bound,
    staleness_for=({"push": "weights", "pull_interval": 4},),
    outcomes=SERVED,
)
