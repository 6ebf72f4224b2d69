"""The claims about our algorithms: one file per algorithm, in its family, with its name and a `CLAIM`."""

import importlib

from simcluster.algorithms import ALGORITHMS
from simcluster.verify.claim import Claim


def claim_about(algorithm: str) -> Claim | None:
    """Return the claim about one of our algorithms; None if *algorithm* is none of them."""
    if algorithm not in ALGORITHMS:
        return None
    family = ALGORITHMS[algorithm].__module__.removeprefix("simcluster.algorithms.")
    claim: Claim = importlib.import_module(f"{__name__}.{family}").CLAIM
    return claim
