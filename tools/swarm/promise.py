"""The promise of docs/faults.md for a case with known faults, and its consequences."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from simcluster.algorithms import ALGORITHMS
from simcluster.algorithms.facts import facts_of
from simcluster.overlays.setting import overlay_of
from tools.outcomes.cases import table
from tools.swarm.case import Case
from tools.swarm.hits import Hits

TABLE = table()
GOSSIP = ("d_psgd", "sgp", "gradient_tracking", "choco_sgd", "ad_psgd")


def way_of(case: Case, hits: Hits) -> str:
    """Return the way in which *case* survives a loss: served, gossip, re-forms or restored."""
    name, settings = case.algorithm, case.settings
    word = TABLE[name]["crash"]
    if name in GOSSIP:
        return "restored" if needs_all(case) or not _graph_bears_losses(case, hits) else "gossip"
    if word == "goes on":
        return "served" if name != "easgd" or settings.get("form", "asynchronous") == "asynchronous" else "restored"
    if word == "re-forms":
        stays = not hits.plan.regroup or facts_of(ALGORITHMS[name]).why_it_stays(case.document["algorithm"])
        stays = stays or are_unequal(hits)  # sizes belong to nodes
        return "restored" if stays else "re-forms"
    return "restored"


def is_exact(case: Case) -> bool:
    """Return whether the result is independent of the order in which messages arrive."""
    return facts_of(ALGORITHMS[case.algorithm]).exact(case.settings)


def needs_all(case: Case) -> bool:
    """Return whether *case* uses gossip that at some time computes the mean of all ranks."""
    gossips = case.algorithm in GOSSIP
    return gossips and (case.settings.get("output") == "mean" or bool(case.settings.get("consensus_every")))


def are_unequal(hits: Hits) -> bool:
    """Return whether the nodes have batches of different sizes."""
    return len(set(hits.plan.workload.batch_sizes)) > 1


def restores_bits(case: Case, hits: Hits) -> bool:
    """Return whether *case*, restarted from a checkpoint, ends with the bits of an undisturbed run.

    If the run may have continued without a node before the checkpoint, as gossip does, the bits
    differ. But gossip that needs the mean of all ranks cannot continue without a node, so its
    checkpoints have the state of every rank's first life. The bits also differ if the algorithm
    draws from global generators, since these are seeded again when a run resumes.
    """
    if case.is_noisy:
        return False
    if case.algorithm in GOSSIP:
        return is_exact(case) and (needs_all(case) or not hits.may_be_lost)
    server = hits.plan.topology.workers[0]
    return is_exact(case) and (way_of(case, hits) == "restored" or hits.may_be_lost <= {server})


def only_serves(case: Case) -> bool:
    """Return whether rank 0 is a server that takes no steps."""
    asynchronous = case.settings.get("form", "asynchronous") == "asynchronous"
    return TABLE[case.algorithm]["crash"] == "goes on" and asynchronous and not case.settings.get("server_trains", True)


def trains(case: Case, hits: Hits) -> bool:
    """Return whether there is an untouched node that takes steps.

    A server that only serves takes none.
    """
    return bool(hits.core[1:] if only_serves(case) else hits.core)


def serves_any(case: Case, left: Collection[str]) -> bool:
    """Return whether a run may end well if only the nodes in *left* did their part.

    A server that only serves needs a worker.
    """
    return not only_serves(case) or any(name in left for name in case.workers[1:])


def must_be_done(case: Case, hits: Hits) -> bool:
    """Return whether the run must end well without a restart."""
    if hits.are_harmless:
        return True
    way = way_of(case, hits)
    if way == "re-forms":
        # If nodes are only cut off from each other, the one with the lowest rank stays.
        return bool(hits.core) or not hits.gone
    if way == "served":
        server = hits.plan.topology.workers[0]
        if case.settings.get("server_trains", True):
            return server not in hits.gone
        return server in hits.core and len(hits.core) > 1
    if way == "gossip":
        return bool(hits.core) and all(needed & set(hits.core) for needed in _needs(case, hits) if needed)
    return False


def _graph_bears_losses(case: Case, hits: Hits) -> bool:
    size = len(case.workers)
    if case.algorithm == "sgp" or size == 1:
        return True
    graph = overlay_of(case.settings.get("overlay", "ring"), size, hits.plan.seed)
    return graph.symmetric and not graph.changing


def _needs(case: Case, hits: Hits) -> Iterator[set[str]]:
    """Yield the receivers, and the senders, of each untouched node in sgp.

    If a nonempty set has no untouched node left, the run may fail: on an overlay of one-way edges,
    a node may lose all its senders while it still has a receiver, and then it cannot continue.
    """
    if case.algorithm != "sgp":
        return
    names = hits.plan.topology.workers
    overlay = case.settings.get("overlay", "one_peer_exponential")
    graph = overlay_of(overlay, len(names), hits.plan.seed)
    for rank, name in enumerate(names):
        if name in hits.core:
            yield from ({names[peer] for peer in peers} for peers in graph.ever(rank))
