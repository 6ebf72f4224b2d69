"""What an algorithm cannot be run with: settings that do not fit the world, or each other. Asked before a run.

The algorithms raise the same when they are called all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from simcluster.algorithms.parameter_server.server import check_push, most_of, trainers

Settings = Mapping[str, Any]
Check = Callable[[int, Settings], object]
"""(world size, the algorithm's settings): raises UsageError with what is wrong."""


def _served(setting: str | None = None) -> Check:
    """A parameter server, of which *setting* is a number of ranks that train."""

    def check(size: int, settings: Settings) -> None:
        ranks = trainers(size, settings["server_trains"])
        if setting is not None:
            most_of(ranks, setting, settings[setting])

    return check


def _edp(size: int, settings: Settings) -> None:
    trainers(size, settings["server_trains"])
    check_push(settings["push"], settings["compression"])


def _k_sync(size: int, settings: Settings) -> None:
    ranks = trainers(size, settings["server_trains"])
    if not settings["batch"]:
        most_of(ranks, "k", settings["k"])


def _easgd(size: int, settings: Settings) -> None:
    trainers(size, settings["server_trains"] or settings["form"] != "asynchronous")


CHECKS: Mapping[str, Check] = {
    "async_diloco": _served(),
    "easgd": _easgd,
    "edp": _edp,
    "fedbuff": _served(),
    "k_async": _served("k"),
    "k_sync": _k_sync,
    "softsync": _served("n"),
    "ssp": _served(),
    "sync_ps": _served("wait_for"),
}
"""By the algorithm's name. Those that are not here run anywhere, or say so themselves when they do."""
