"""Claims about built-in algorithms, in a file per family; a `Claim` is named after its algorithm."""

from simcluster.algorithms import ALGORITHMS
from simcluster.lab.verify.claim import Claim
from simcluster.lab.verify.claims import data_parallel, diloco, experts, gossip, local_steps, model_parallel
from simcluster.lab.verify.claims import parameter_server as parameter_server

FAMILIES = (data_parallel, model_parallel, experts, parameter_server, local_steps, diloco, gossip)


def claim_about(algorithm: str) -> Claim | None:
    """Return the claim about a built-in algorithm; None if *algorithm* is not built in."""
    found = [vars(family).get(algorithm.upper()) for family in FAMILIES if algorithm in ALGORITHMS]
    return next((claim for claim in found if claim is not None), None)
