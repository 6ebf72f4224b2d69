"""Whom to gossip with where every rank has other data: more edges are better, and one well chosen edge beats two."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from experiments.papers.frame import Check, Lab, Paper, agrees, exceeds, star

RANKS = 16
BEST_FIRST = ("complete", "torus", "ring", "star")


def trained(lab: Lab, overlay: str) -> tuple[float, float]:
    """(held-out loss of rank 0's own model, bytes sent a round), means over seeds."""
    steps = lab.pick(30, 60)
    runs = [
        lab.run(
            topology=star([None] * RANKS),
            algorithm={"name": "d_psgd", "overlay": overlay},
            workload={
                "name": "mnist_mlp", "hidden": 16, "batch_size": 16, "learning_rate": 0.1,
                "partition": "dirichlet", "alpha": 0.1,
            },
            stop={"steps": steps},
            evaluate_every=steps,
            seed=seed,
        )
        for seed in lab.pick((0,), (0, 1, 2))
    ]  # fmt: skip
    return fmean(run.summary["loss"] for run in runs), runs[0].summary["bytes_sent"] / steps


def measure(lab: Lab) -> Sequence[Check]:
    order = lab.pick(BEST_FIRST[2:], BEST_FIRST)
    found = {overlay: trained(lab, overlay) for overlay in (*order, "one_peer_exponential")}
    checks = [
        exceeds(f"the loss on a {worse} is above that on a {better}", found[worse][0], found[better][0])
        for better, worse in pairwise(order)
    ]
    peer = found["one_peer_exponential"]
    return [
        *checks,
        exceeds("and above that of one-peer exponential", found["ring"][0], peer[0]),
        agrees("bytes of one-peer exponential against the ring's", peer[1] / found["ring"][1], 0.5, 1e-3),
    ]


PAPER = Paper(
    title="Topology on data that differ",
    citation="Ying, Yuan, Chen, Hu, Pan and Yin 2021. Exponential graph is provably efficient for decentralized deep "
    "training (NeurIPS)",
    claim="If ranks have different data, D-PSGD is better the faster its graph mixes; the one-peer exponential "
    "graph, with a single neighbour per round, does as well as the static one and better than a ring with two.",
    setting="`d_psgd` on 16 ranks, digits dealt by Dirichlet 0.1 (a rank has two or three of the ten digits), 60 "
    "steps of SGD at 0.1, evaluated on rank 0's model, mean of three seeds.",
    expected="Complete better than torus, torus than ring, ring than star; one-peer exponential better than the ring "
    "with half its bytes.",
    measure=measure,
)
