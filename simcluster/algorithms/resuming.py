"""The promise of each algorithm for a resumed run: the bits of one that never stopped, or training that continues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Settings = Mapping[str, Any]


def _always(_: Settings) -> bool:
    return True


def _never(_: Settings) -> bool:
    return False


@dataclass(frozen=True)
class Resuming:
    """*exact*: whether a resumed run ends with the bits of one that was never stopped, by the settings.

    *stays*: why it cannot go on with another number of ranks; empty if it can. *whole*: whether rank 0 has a whole
    model at every step. *spares*: which ranks the others go on without, so that a checkpoint may have an older part of
    theirs: all but the server, any of them, or none where the parts of one step belong together.
    """

    exact: Callable[[Settings], bool] = _always
    stays: str = ""
    whole: Callable[[Settings], bool] = _always
    spares: Literal["", "workers", "any"] = ""


_SUMS = "what its ranks have sums up to something that is kept, and would not with others"

RESUMING: Final[Mapping[str, Resuming]] = {
    "ad_psgd": Resuming(_never),
    "all_reduce_dp": Resuming(),
    "async_diloco": Resuming(_never),
    "choco_sgd": Resuming(stays="every rank holds copies of its neighbours' weights"),
    "d_psgd": Resuming(spares="any"),
    "demo": Resuming(),
    "diloco": Resuming(),
    "easgd": Resuming(
        lambda settings: settings.get("form", "asynchronous") != "asynchronous",
        "the centre goes round its ranks",
        spares="workers",
    ),
    "edp": Resuming(_never),
    "fedbuff": Resuming(_never),
    "gradient_tracking": Resuming(stays=_SUMS),
    "k_async": Resuming(lambda settings: settings.get("k") is None and not settings.get("batch"), spares="workers"),
    "k_sync": Resuming(lambda settings: settings.get("k") is None and not settings.get("batch"), spares="workers"),
    "local_sgd": Resuming(),
    "one_bit_adam": Resuming(stays="what signs left out is kept by each rank for each of the others"),
    "pipeline": Resuming(whole=_never),
    "sgp": Resuming(stays=_SUMS),
    "softsync": Resuming(_never),
    "sparta": Resuming(),
    "ssp": Resuming(lambda settings: settings.get("staleness") == 0, spares="workers"),
    "streaming_diloco": Resuming(),
    "sync_ps": Resuming(
        lambda settings: settings.get("wait_for") is None and settings.get("timeout_s") is None, spares="workers"
    ),
    "tensor_parallel": Resuming(stays="each rank has a share of every layer, cut for as many", whole=_never),
    "zero": Resuming(whole=lambda settings: settings.get("stage") != 3),
}
"""By name. Of one's own algorithms it is known that they call `checkpoint`, and nothing else."""


def has_whole_model(block: Settings) -> bool:
    """Whether rank 0 of the algorithm in *block* has a whole model at every step."""
    known = RESUMING.get(block.get("name", ""))
    return known is None or known.whole(block)


def why_it_stays(block: Settings) -> str:
    """Why the algorithm in *block* cannot go on with another number of ranks; empty if it can."""
    known = RESUMING.get(block.get("name", ""))
    if known is not None and known.stays and not (block.get("name") == "easgd" and block.get("form") != "round_robin"):
        return known.stays
    if block.get("compression", "none") != "none":
        return "what compression left out is kept by each rank, for as many ranks"
    return ""


def spared(block: Settings, size: int) -> range:
    """Return the ranks, of *size*, that the others of the algorithm in *block* go on without."""
    known = RESUMING.get(block.get("name", ""))
    if known is None or not known.spares or why_it_stays(block):
        return range(0)
    return range(1 if known.spares == "workers" else 0, size)
