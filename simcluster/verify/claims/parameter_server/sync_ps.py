"""Claims about `sync_ps`: a loop over steps and ranks, in one process, with all ranks' weights."""

from __future__ import annotations

from simcluster.verify.claim import Claim, Identity, Settings, Variant, Weights
from simcluster.verify.faults import SERVED
from simcluster.verify.naive import account, born, ended, gradients_of
from simcluster.workloads import Workload


def reference(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """The server steps with the mean gradient; then every worker moves towards it, or takes a step by itself."""
    replicas = born(workload, size, seed, steps)
    server, workers = replicas[0], replicas[1:]
    trained = replicas if settings["server_trains"] else workers
    share = settings.get("polyak", 1.0)
    for step, gradients in enumerate(gradients_of(trained), start=1):
        server.apply([sum(parts[1:], start=parts[0]) / len(parts) for parts in zip(*gradients, strict=True)])
        for worker, own in zip(workers, gradients[len(trained) - len(workers) :], strict=True):
            if step % settings.get("pull_interval", 1):
                worker.apply(own)
            else:
                pairs = zip(worker.parameters, server.parameters, strict=True)
                worker.load([(1 - share) * mine + share * new for mine, new in pairs])
    return ended(replicas)


def payload_bytes(size: int, model_bytes: int, steps: int, settings: Settings) -> int:
    """A gradient up every step, weights down at the steps with a pull."""
    pulls: int = steps // settings["pull_interval"]
    return (size - 1) * (steps + pulls) * model_bytes


CLAIM = Claim(
    paper="Li et al. 2014, section 2; Chen et al. 2016, section 3",
    reference=reference,
    reference_for=(
        {"pull_interval": 3},
        {"polyak": 0.25},
        {"pull_interval": 2, "polyak": 0.5},
        {"server_trains": False},
    ),
    variants={
        "pull_interval": 3,
        "polyak": 0.5,
        "timeout_s": Variant(1e-4, uneven=True),
        "wait_for": Variant(2, uneven=True),
        "cancel_late": Variant(True, given={"wait_for": 2}, uneven=True),
        "server_trains": False,
    },
    identities=(
        Identity({}, "one process", why="the mean of the ranks' gradients is the gradient of the joined batch"),
        Identity({"timeout_s": 1e6}, "sync_ps", exact=True, why="a timeout that never expires"),
        Identity({"cancel_late": True}, "sync_ps", exact=True, why="no rank is late"),
        Identity({"wait_for": 3}, "sync_ps", exact=True, why="K = N", sizes=(3,)),
    ),
    payload_bytes=payload_bytes,
    contributions=account,
    replicas_agree=True,
    outcomes=SERVED,
)
