"""Claims about parameter servers; there are references if the order of arrival does not matter."""

from __future__ import annotations

from simcluster.lab.verify.claim import Claim, Identity, Settings, Variant, Weights
from simcluster.lab.verify.faults import SERVED
from simcluster.lab.verify.naive import account, born, ended, gradients_of, mean, rounds, up_and_down, walk
from simcluster.workloads import Workload, train_alone


def one_worker(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Return the weights of ordinary training in one process.

    The process is one rank alone, or the only worker of a server that does not train. Return none
    in other cases.
    """
    if size == 1:
        return [train_alone(workload, 1, seed, steps)]
    if size > 2 or settings["server_trains"] or settings.get("pull_interval", 1) > 1:
        return []
    worker = workload.replica(1, size, seed, steps)
    walk(worker, worker.batches(), steps)
    return [worker.parameters] * 2


def edp_bytes(size: int, model_bytes: int, steps: int, settings: Settings) -> int:
    """Return the bytes that all ranks send.

    They are a gradient per worker and step, and the weights per worker and pull; or weights in both
    directions per worker and round, if the setting *push* is "weights".
    """
    if settings["push"] == "weights":
        return 2 * (size - 1) * rounds(steps, settings["pull_interval"]) * model_bytes
    return sync_ps_bytes(size, model_bytes, steps, settings)


def edp_staleness(size: int, settings: Settings) -> float:
    """Return the largest staleness on equal nodes.

    Between a pull and its push, every other rank may push in two rounds. Gradients that
    are pushed without a new pull are staler by the number of pushes in the meantime.
    """
    rounds_apart = 1 if settings["push"] == "weights" else settings["pull_interval"]
    return 2.0 * (size - 1) * rounds_apart


EDP = Claim(
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
    payload_bytes=edp_bytes,
    contributions=account,
    staleness_bound=edp_staleness,
    staleness_for=({"push": "weights", "pull_interval": 4},),
    outcomes=SERVED,
)


def sync_ps(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Return the weights of a server that steps with the mean gradient, and of its workers.

    At a step with a pull, every worker moves towards the server; at others, it steps by itself.
    """
    replicas = born(workload, size, seed, steps)
    server, workers = replicas[0], replicas[1:]
    trained = replicas if settings["server_trains"] else workers
    share = settings.get("polyak", 1.0)
    for step, gradients in enumerate(gradients_of(trained), start=1):
        server.apply([mean(parts) for parts in zip(*gradients, strict=True)])
        for worker, own in zip(workers, gradients[len(trained) - len(workers) :], strict=True):
            if step % settings.get("pull_interval", 1):
                worker.apply(own)
            else:
                pairs = zip(worker.parameters, server.parameters, strict=True)
                worker.load([(1 - share) * mine + share * new for mine, new in pairs])
    return ended(replicas)


def sync_ps_bytes(size: int, model_bytes: int, steps: int, settings: Settings) -> int:
    """Return the bytes that all ranks send.

    They are each worker's gradient at every step, and the weights to each worker at every step with
    a pull.
    """
    pulls: int = steps // settings["pull_interval"]
    return (size - 1) * (steps + pulls) * model_bytes


SYNC_PS = Claim(
    paper="Li et al. 2014, section 2; Chen et al. 2016, section 3",
    reference=sync_ps,
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
        "compression": "int8",
    },
    identities=(
        Identity({}, "one process", why="the mean of the ranks' gradients is the gradient of the joined batch"),
        Identity({"timeout_s": 1e6}, "sync_ps", exact=True, why="a timeout that never expires"),
        Identity({"cancel_late": True}, "sync_ps", exact=True, why="no rank is late"),
        Identity({"wait_for": 3}, "sync_ps", exact=True, why="K = N", sizes=(3,)),
        Identity(
            {}, "sync_ps", {"compression": {"kind": "top_k", "fraction": 1.0}}, exact=True, why="top-100 % = dense"
        ),
    ),
    payload_bytes=sync_ps_bytes,
    contributions=account,
    replicas_agree=True,
    outcomes=SERVED,
)


def k_sync(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Return the synchronous server's weights for the default K = P.

    Return none for other values, for which timing decides the result.
    """
    if settings["k"] is None and not settings["batch"]:
        return sync_ps(workload, size, seed, steps, settings)
    return []


K_SYNC = Claim(
    paper="Dutta et al. 2018, section 2",
    reference=k_sync,
    reference_for=({"server_trains": False},),
    variants={"k": Variant(2, uneven=True), "batch": Variant(True, uneven=True), "server_trains": False},
    identities=(
        Identity({}, "one process", why="the mean of the ranks' gradients is the gradient of the joined batch"),
        Identity({}, "sync_ps", exact=True, why="K = P"),
        Identity({"k": 3}, "sync_ps", exact=True, why="K = P", sizes=(3,)),
        Identity(
            {"k": 2, "server_trains": False},
            "sync_ps",
            {"wait_for": 2, "cancel_late": True, "server_trains": False},
            exact=True,
            why="backup workers whose late work is cancelled",
            sizes=(3, 4, 7),
        ),
    ),
    payload_bytes=up_and_down,
    contributions=account,
    replicas_agree=True,
    outcomes=SERVED,
)


def k_async(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Return the synchronous server's weights for the default K = P.

    For other values, return those of ordinary training if there is only one worker.
    """
    if settings["k"] is None and not settings["batch"]:
        return sync_ps(workload, size, seed, steps, settings)
    return one_worker(workload, size, seed, steps, settings)


K_ASYNC = Claim(
    paper="Dutta et al. 2018, section 2",
    reference=k_async,
    reference_for=({"server_trains": False},),
    variants={"k": 2, "batch": Variant(True, given={"k": 2}), "server_trains": False},
    identities=(
        Identity({}, "sync_ps", exact=True, why="K = P"),
        Identity({"k": 1}, "edp", exact=True, why="K = 1"),
        Identity({"k": 1, "batch": True}, "edp", exact=True, why="K = 1"),
        Identity({"k": 1, "batch": True}, "softsync", {"n": 3}, exact=True, why="K = lambda / n", sizes=(3,)),
    ),
    payload_bytes=up_and_down,
    contributions=account,
    replicas_agree=True,
    outcomes=SERVED,
)


def ssp(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Return the synchronous server's weights for a staleness bound of 0, which is a barrier.

    For larger bounds, timing decides the result, unless there is only one worker.
    """
    if settings["staleness"] == 0:
        return sync_ps(workload, size, seed, steps, settings)
    return one_worker(workload, size, seed, steps, settings)


SSP = Claim(
    paper="Ho et al. 2013, section 2",
    order_free=False,
    reference=ssp,
    reference_for=({"staleness": 0}, {"staleness": 0, "server_trains": False}),
    variants={"staleness": 0, "server_trains": False},
    identities=(
        Identity({"staleness": 0}, "sync_ps", exact=True, why="no rank runs ahead: bulk-synchronous"),
        Identity({"staleness": None}, "edp", exact=True, why="no rank waits: asynchronous"),
        Identity(
            {"staleness": 0, "server_trains": False},
            "sync_ps",
            {"server_trains": False},
            exact=True,
            why="of the workers alone, too",
        ),
    ),
    payload_bytes=up_and_down,
    contributions=account,
    outcomes=SERVED,
)

SOFTSYNC = Claim(
    paper="Zhang, Gupta, Lian and Liu 2016, sections 2 and 3",
    order_free=False,
    reference=one_worker,
    variants={"n": 2, "damping": Variant("inverse", given={"n": 3}), "server_trains": False},
    identities=(
        Identity({"n": 3}, "edp", exact=True, why="one gradient an update", sizes=(3,)),
        Identity({}, "k_async", {"batch": True}, exact=True, why="K = lambda gradients, whosever they are"),
        Identity({"n": 2}, "k_async", {"k": 2, "batch": True}, exact=True, why="K = 4 // 2", sizes=(4,)),
    ),
    contributions=account,
    outcomes=SERVED,
)
