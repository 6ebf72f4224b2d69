"""Settings of all-reduces that follow the network: sites of near ranks, and shares by bandwidth.

    schedule: hierarchical        # with sites: topology, or lists of nodes
    schedule: bandwidth_aware     # with shares: topology, or a number for each rank

An algorithm cannot see the topology. The experiment passes it the numbers of its group's ranks, so
after a loss they are those of the living.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, cast

from pydantic import NonNegativeFloat, NonNegativeInt

from simcluster.algorithms.model_parallel.order import ranks_of
from simcluster.collectives import all_reduce
from simcluster.collectives.schedules import SCHEDULES, ScheduleOf, needed
from simcluster.compression.mean import AllReduce
from simcluster.errors import Problem, UsageError, raise_all
from simcluster.overlays.nearness import sites_of, weights_of
from simcluster.topology import Topology

TOPOLOGY = "topology"
_ARGUMENTS = {"sites": "sites", "shares": "weights"}
"""Setting -> the argument of schedules that has its value."""
PLACED = ScheduleOf("all_reduce", gives=tuple(_ARGUMENTS.values()))

PlacedSchedule = Annotated[str, PLACED]
"""The type of a setting that names any all-reduce schedule, next to settings `sites` and `shares`."""
Sites = tuple[tuple[NonNegativeInt | str, ...], ...] | Literal["topology"]
"""The nodes of each site, by name or rank; or `topology`."""
Shares = tuple[NonNegativeFloat, ...] | Literal["topology"]
"""The share of the vector that each rank sums, in any scale; or `topology`."""


def all_reduce_by(schedule: str, sites: Sites, shares: Shares) -> AllReduce:
    """Return the all-reduce by *schedule*, with the arguments that the schedule needs.

    Raise UsageError if one is still `topology`, which only an experiment replaces.
    """
    values: dict[str, Any] = {"sites": sites, "shares": shares}
    used = _used_by(schedule)
    for name in used:
        if values[name] == TOPOLOGY:
            raise UsageError(name, TOPOLOGY, "numbers of ranks: only an experiment has a topology")
    return cast(AllReduce, partial(all_reduce, schedule=schedule, **{_ARGUMENTS[name]: values[name] for name in used}))


def check_places(settings: Mapping[str, Any], cluster: Topology, size_bytes: Callable[[], int]) -> None:
    """Raise UsageError, with all problems, if `sites` or `shares` do not fit *cluster* or the
    schedule.

    *size_bytes*: a function that returns the size of the vector that is summed.
    """
    if {"schedule", *_ARGUMENTS} <= settings.keys():
        raise_all([*_unused(settings), *_wrong_places(settings, cluster, size_bytes)])


def _unused(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each setting that does not fit the schedule."""
    schedule = settings["schedule"]
    used = _used_by(schedule)
    for name in _ARGUMENTS:
        if settings[name] != TOPOLOGY and name not in used:
            fit = " or ".join(each for each in PLACED.names if name in _used_by(each))
            yield Problem(name, json.dumps(settings[name]), f"schedule: {fit} with it, not {schedule}")
    kind = settings.get("compression", "none")
    kind = kind["kind"] if isinstance(kind, Mapping) else kind
    if used and kind not in ("none", "power_sgd"):
        expected = f"none or power_sgd with schedule: {schedule}: other kinds have their own pattern of messages"
        yield Problem("compression", kind, expected)


def _wrong_places(settings: Mapping[str, Any], cluster: Topology, size_bytes: Callable[[], int]) -> Iterator[Problem]:
    """Yield a problem for each of the settings in use that does not fit *cluster*."""
    used = _used_by(settings["schedule"])
    names = cluster.workers
    sites = settings["sites"]
    shares = settings["shares"]
    if "sites" in used and sites != TOPOLOGY:
        there = {rank for site in _as_ranks(sites, names) for rank in site}
        missing = [name for rank, name in enumerate(names) if rank not in there]
        if missing:
            yield Problem("sites", f"{', '.join(missing)} at no site", "each node at exactly one site")
        if not all(sites):
            yield Problem("sites", "an empty site", "each node at exactly one site")
    elif "sites" in used and 1 == len(sites_of(cluster, size_bytes())) < len(names):
        found = f"topology, in which all {len(names)} nodes are at one site"
        expected = "at least two sites: give nodes a `site`, list the nodes of each site, or use schedule: ring"
        yield Problem("sites", found, expected)
    if "shares" in used and shares != TOPOLOGY and (len(shares) != len(names) or not 0 < sum(shares) < math.inf):
        expected = f"{len(names)} numbers, one for each node, with a finite sum above 0"
        yield Problem("shares", json.dumps(shares), expected)


def by_place(settings: Mapping[str, Any], cluster: Topology, ranks: Sequence[int], size_bytes: int) -> dict[str, Any]:
    """Return *settings* with `sites` and `shares` for a group of *ranks* of *cluster*, in rank
    order, that sums vectors of *size_bytes*.

    Sites that have lost all ranks are left out. Settings that the schedule does not use are unchanged.
    """
    found, names = dict(settings), cluster.workers
    used = _used_by(settings["schedule"]) if {"schedule", *_ARGUMENTS} <= settings.keys() else []
    if "sites" in used:
        given = settings["sites"]
        sites = sites_of(cluster, size_bytes) if given == TOPOLOGY else _as_ranks(given, names)
        place = {rank: number for number, rank in enumerate(ranks)}
        living = [tuple(place[rank] for rank in site if rank in place) for site in sites]
        found["sites"] = tuple(site for site in living if site)
    if "shares" in used:
        given, there = settings["shares"], tuple(names[rank] for rank in ranks)
        shares = weights_of(cluster, size_bytes, there) if given == TOPOLOGY else [given[rank] for rank in ranks]
        found["shares"] = tuple(shares) if any(shares) else (1.0,) * len(ranks)
    return found


def _used_by(schedule: str) -> list[str]:
    """Return the settings that *schedule* needs."""
    arguments = needed(SCHEDULES["all_reduce"][schedule])
    return [name for name, argument in _ARGUMENTS.items() if argument in arguments]


def _as_ranks(sites: Sequence[Sequence[int | str]], names: Sequence[str]) -> list[list[int]]:
    entries = [entry for site in sites for entry in site]
    try:
        ranks = iter(ranks_of(entries, len(names), names) if entries else ())
    except UsageError as error:
        raise UsageError([replace(problem, key="sites") for problem in error.problems]) from None
    return [[next(ranks) for _ in site] for site in sites]
