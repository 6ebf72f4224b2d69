"""Claims about `choco_sgd`: the loop over all models, their copies and Q, in one process."""

from __future__ import annotations

import numpy as np

from simcluster.compression import Codec, compressor
from simcluster.overlays import overlay_of
from simcluster.rng import NodeRandom
from simcluster.verify.claim import Claim, Identity, Settings, Weights
from simcluster.verify.claims.gossip import d_psgd
from simcluster.verify.faults import GOES_ON
from simcluster.verify.naive import born, gradients_of, output, times
from simcluster.workloads import Workload

TOP = {"kind": "top_k", "fraction": 0.25, "error_feedback": False}


def reference(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """X <- X - eta G, X^ <- X^ + Q(X - X^), X <- X + gamma (W - I) X^; for a Q that is not random."""
    correction = overlay_of(settings["overlay"], size, seed).matrix() - np.eye(size)
    replicas = born(workload, size, seed, steps)
    copies = [replica.snapshot() for replica in replicas]
    codecs = [Codec(compressor(settings["compression"]), NodeRandom(seed, ""), "", copy) for copy in copies]
    for all_gradients in gradients_of(replicas):
        for replica, copy, codec, gradients in zip(replicas, copies, codecs, all_gradients, strict=True):
            replica.apply(gradients)
            sent = codec.encode([mine - old for mine, old in zip(replica.parameters, copy, strict=True)])
            for old, moved in zip(copy, codec.decode(sent), strict=True):
                old.add_(moved)
        for replica, towards in zip(replicas, times(correction, copies), strict=True):
            replica.load([x + settings["gamma"] * t for x, t in zip(replica.parameters, towards, strict=True)])
    return output([replica.parameters for replica in replicas], settings)


CLAIM = Claim(
    paper="Koloskova, Stich and Jaggi 2019 (ICML), algorithm 2",
    reference=reference,
    reference_for=[{"compression": TOP, "gamma": 0.4}, {"overlay": "star", "gamma": 0.7}, {"output": "mean"}],
    variants={"overlay": "line", "compression": "int8", "gamma": 0.5, "consensus_every": 2, "output": "mean"},
    identities=[
        Identity({}, "d_psgd", {"order": "step_then_mix"}, why="uncompressed, copies are the models themselves"),
        Identity({"overlay": "complete"}, "all_reduce_dp", why="D-PSGD on the complete graph"),
    ],
    payload_bytes=d_psgd.payload_bytes,
    mixing=d_psgd.mixing,
    outcomes=GOES_ON,
)
