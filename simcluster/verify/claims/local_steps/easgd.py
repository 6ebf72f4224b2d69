"""Claims about elastic averaging, and references for its two forms that do not depend on arrival."""

from __future__ import annotations

from simcluster.verify.claim import Claim, Settings, Weights
from simcluster.verify.faults import SERVED
from simcluster.verify.naive import account, born, ended, gradients_of, overwrite, rounds, vector
from simcluster.workloads import Workload, train_alone


def reference(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Elastic forces, all at once or one after another; the asynchronous form has a reference for one rank only."""
    if size == 1:
        return [train_alone(workload, 1, seed, steps)]
    if settings["form"] == "asynchronous":
        return []
    replicas = born(workload, size, seed, steps)
    centre, alpha = vector(replicas[0]), settings["beta"] / size
    for step, all_gradients in enumerate(gradients_of(replicas), start=1):
        meets = step % settings["interval"] == 0 or step == steps
        met = centre
        for replica, gradients in zip(replicas, all_gradients, strict=True):
            if meets:
                seen = centre if settings["form"] == "synchronous" else met
                force = alpha * (vector(replica) - seen)
                overwrite(replica, vector(replica) - force)
                met = met + force
            replica.apply(gradients)
        centre = met
    overwrite(replicas[0], centre)
    return ended(replicas)


def _bytes(size: int, model: int, steps: int, settings: Settings) -> int:
    # Asynchronous: weights up and a force down; synchronous: a ring; round-robin: the centre to the next. Alone: none.
    times = {"asynchronous": 2 * (size - 1), "synchronous": 2 * (size - 1), "round_robin": size if size > 1 else 0}
    return times[settings["form"]] * rounds(steps, settings["interval"]) * model


CLAIM = Claim(
    paper="Zhang, Choromanska and LeCun 2015, sections 3 and 4, algorithm 1",
    settings={"interval": 2},
    order_free=False,
    reference=reference,
    reference_for=(
        {"form": "synchronous"},
        {"form": "round_robin"},
        {"form": "synchronous", "interval": 1},
        {"form": "round_robin", "interval": 3, "beta": 0.3},
    ),
    variants={"form": "synchronous", "interval": 1, "beta": 0.3, "server_trains": False},
    payload_bytes=_bytes,
    contributions=account,
    outcomes=SERVED,
)
