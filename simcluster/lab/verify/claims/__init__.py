"""The claims about our algorithms: one file per family, in which each `Claim` has the algorithm's name in capitals."""

from simcluster.algorithms import ALGORITHMS
from simcluster.lab.verify.claim import Claim
from simcluster.lab.verify.claims import data_parallel, diloco, gossip, local_steps, model_parallel, parameter_server

FAMILIES = (data_parallel, model_parallel, parameter_server, local_steps, diloco, gossip)


def claim_about(algorithm: str) -> Claim | None:
    """Return the claim about one of our algorithms; None if *algorithm* is none of them."""
    found = [vars(family).get(algorithm.upper()) for family in FAMILIES if algorithm in ALGORITHMS]
    return next((claim for claim in found if claim is not None), None)
