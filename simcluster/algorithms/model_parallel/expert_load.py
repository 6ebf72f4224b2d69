"""How many tokens each expert takes: a load that is set, for runs without values; and a capacity."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Annotated, Any, Final

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, NonNegativeFloat
from pydantic_core import PydanticCustomError

from simcluster.errors import UsageError

Counts = npt.NDArray[np.int64]
"""Numbers of copies of tokens, by rank and by expert."""

FORMS: Final = "uniform, zipf(s) with s from 0 to 10, or a list with a number for each expert"
MOST_SLOPE: Final = 10.0
_ZIPF = re.compile(r"zipf\((\d{1,3}(?:\.\d{1,6})?)\)")


def _checked(load: Any) -> Any:
    if isinstance(load, str) and load != "uniform":
        found = _ZIPF.fullmatch(load)
        if found is None or float(found[1]) > MOST_SLOPE:
            raise PydanticCustomError("load", "{forms} (not {load})", {"forms": FORMS, "load": load})
    elif load is not None and not isinstance(load, str) and not 0 < sum(load) < math.inf:
        raise PydanticCustomError("load", "{forms}, with a finite sum above 0", {"forms": FORMS})
    return load


ExpertLoad = Annotated[tuple[NonNegativeFloat, ...] | str | None, AfterValidator(_checked)]
"""The tokens that go to each expert: "uniform", "zipf(s)" (expert e in proportion to 1 / (e + 1)^s), or
numbers in proportion.
"""


def shares_of(load: Sequence[float] | str | None, experts: int, active: int) -> list[float]:
    """Return each expert's share of the copies of tokens.

    Raise UsageError if *load* does not fit *experts*, or if an expert would take more than every
    token.
    """
    if load is None or load == "uniform":
        weights = [1.0] * experts
    elif isinstance(load, str):
        (slope,) = _ZIPF.findall(load)
        weights = [(number + 1) ** -float(slope) for number in range(experts)]
    else:
        weights = list(load)
    if len(weights) != experts:
        raise UsageError("load", f"{len(weights)} numbers", f"{experts}, one for each expert of the model")
    shares = [weight / sum(weights) for weight in weights]
    if max(shares) * active > 1 + 1e-9:
        found = f"{max(shares):.3g} of the copies for one expert"
        raise UsageError("load", found, f"at most 1/{active}: a token goes to {active} different experts")
    return shares


def counts_by(shares: Sequence[float], copies: Sequence[int]) -> Counts:
    """Return each rank's *copies* divided by *shares*: rounded down, and one more each for the
    largest remainders. Among equal remainders, those come first that follow the last rank's, so that
    a uniform load is uniform.
    """
    found = np.floor(np.outer(copies, shares) + 1e-9).astype(np.int64)
    first = 0
    for row, number in zip(found, copies, strict=True):
        left, more = np.roll(np.round(np.array(shares) * number - row, 9), -first), number - int(row.sum())
        row[(np.argsort(-left, kind="stable")[:more] + first) % len(row)] += 1
        first = (first + more) % len(row)
    return found


def kept_of(counts: Counts, factor: float | None, active: int) -> Counts:
    """Return the copies that each expert takes of *counts*, the first ones by rank.

    An expert takes at most ceil(tokens x *active* / experts x *factor*), where the tokens are those
    of all ranks; any number if *factor* is None (Lepikhin et al. 2020, section 2.2).
    """
    if factor is None:
        return counts
    copies = int(counts.sum())
    capacity = math.ceil(round(min(copies / counts.shape[1] * factor, copies), 9))
    before = counts.cumsum(axis=0) - counts
    kept: Counts = np.clip(capacity - before, 0, counts)
    return kept
