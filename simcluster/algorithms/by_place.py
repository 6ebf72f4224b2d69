"""Settings of all-reduces that follow the network: sites of near ranks, and shares by bandwidth.

    schedule: hierarchical        # with sites: topology, or lists of nodes
    schedule: bandwidth_aware     # with shares: topology, or a number for each rank

An algorithm cannot see the topology. The experiment passes it the numbers of its group's ranks, so
after a loss they are those of the living.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Annotated, Any, Literal, cast

from pydantic import NonNegativeFloat, NonNegativeInt

from simcluster.collectives import all_reduce
from simcluster.collectives.schedules import SCHEDULES, ScheduleOf, needed
from simcluster.compression.mean import AllReduce
from simcluster.errors import Problem, UsageError, nearest, raise_all
from simcluster.overlays.nearness import sites_of, weights_of
from simcluster.topology import Topology

TOPOLOGY = "topology"
_ARGUMENTS = {"sites": "sites", "shares": "weights"}
"""Setting -> the argument of schedules that has its value."""
_GIVEN = tuple(_ARGUMENTS.values())

PlacedSchedule = Annotated[str, ScheduleOf("all_reduce", gives=_GIVEN)]
"""The type of a setting that names any all-reduce schedule, next to settings `sites` and `shares`."""
Sites = tuple[tuple[NonNegativeInt | str, ...], ...] | Literal["topology"]
"""The nodes of each site, by name or rank; or `topology`."""
Shares = tuple[NonNegativeFloat, ...] | Literal["topology"]
"""The share of the vector that each rank sums, in any scale; or `topology`."""


def all_reduce_by(schedule: str, sites: Sites, shares: Shares) -> AllReduce:
    """Return the all-reduce by *schedule*, with the arguments that the schedule needs.

    Raise UsageError if one is still `topology`, which only an experiment replaces.
    """
    given = {name: {"sites": sites, "shares": shares}[name] for name in _followed(schedule)}
    if TOPOLOGY in given.values():
        raise UsageError(next(iter(given)), TOPOLOGY, "numbers of ranks: only an experiment has a topology")
    arguments: dict[str, Any] = {_ARGUMENTS[name]: value for name, value in given.items()}
    return cast(AllReduce, partial(all_reduce, schedule=schedule, **arguments))


def check_places(settings: Mapping[str, Any], cluster: Topology, size_bytes: Callable[[], int]) -> None:
    """Raise UsageError, with all problems, if `sites` or `shares` do not fit *cluster* or the
    schedule.

    *size_bytes*: a function that returns the size of the vector that is summed.
    """
    if not {"schedule", *_ARGUMENTS} <= settings.keys():
        return
    schedule, kind = settings["schedule"], settings.get("compression", "none")
    followed, names = _followed(schedule), cluster.workers
    problems = [
        Problem(name, json.dumps(settings[name]), f"schedule: {_followers(name)} with it, not {schedule}")
        for name in _ARGUMENTS
        if settings[name] != TOPOLOGY and name not in followed
    ]
    kind = kind["kind"] if isinstance(kind, Mapping) else kind
    if followed and kind not in ("none", "power_sgd"):
        expected = f"none or power_sgd with schedule: {schedule}: other kinds have their own pattern of messages"
        problems.append(Problem("compression", kind, expected))
    if "sites" in followed and settings["sites"] != TOPOLOGY:
        problems += _misplaced(settings["sites"], names)
    elif "sites" in followed and 1 == len(_sites(cluster, size_bytes())) < len(names):
        found = f"topology, in which all {len(names)} nodes are at one site"
        expected = "at least two sites: give nodes a `site`, list the nodes of each site, or use schedule: ring"
        problems.append(Problem("sites", found, expected))
    shares = settings["shares"] if "shares" in followed else TOPOLOGY
    if shares != TOPOLOGY and (len(shares) != len(names) or not any(shares)):
        problems.append(Problem("shares", json.dumps(shares), f"{len(names)} numbers, one for each node, not all 0"))
    raise_all(problems)


def by_place(settings: Mapping[str, Any], cluster: Topology, ranks: Sequence[int], size_bytes: int) -> dict[str, Any]:
    """Return *settings* with `sites` and `shares` for a group of *ranks* of *cluster*, in rank
    order, that sums vectors of *size_bytes*.

    Sites that have lost all ranks are left out. Settings that the schedule does not use are unchanged.
    """
    found = dict(settings)
    followed = _followed(settings["schedule"]) if {"schedule", *_ARGUMENTS} <= settings.keys() else []
    if "sites" in followed:
        given = settings["sites"]
        sites = _sites(cluster, size_bytes) if given == TOPOLOGY else _as_ranks(given, cluster.workers)
        place = {rank: number for number, rank in enumerate(ranks)}
        living = [tuple(place[rank] for rank in site if rank in place) for site in sites]
        found["sites"] = tuple(site for site in living if site)
    if "shares" in followed:
        given = settings["shares"]
        shares = _shares(cluster, size_bytes, tuple(ranks)) if given == TOPOLOGY else [given[rank] for rank in ranks]
        found["shares"] = tuple(shares) if any(shares) else (1.0,) * len(ranks)
    return found


def _followed(schedule: str) -> list[str]:
    """Return the settings that *schedule* needs."""
    arguments = needed(SCHEDULES["all_reduce"][schedule])
    return [name for name, argument in _ARGUMENTS.items() if argument in arguments]


def _followers(setting: str) -> str:
    """Return the schedules that need *setting*, in words."""
    return " or ".join(name for name in ScheduleOf("all_reduce", gives=_GIVEN).names if setting in _followed(name))


@lru_cache(maxsize=8)  # all ranks of a simulation ask for the same numbers
def _sites(cluster: Topology, size_bytes: int) -> list[list[int]]:
    return sites_of(cluster, size_bytes)


@lru_cache(maxsize=8)
def _shares(cluster: Topology, size_bytes: int, ranks: tuple[int, ...]) -> list[float]:
    return weights_of(cluster, size_bytes, [cluster.workers[rank] for rank in ranks])


def _as_ranks(sites: Sequence[Sequence[int | str]], names: Sequence[str]) -> list[list[int]]:
    return [[names.index(entry) if isinstance(entry, str) else entry for entry in site] for site in sites]


def _misplaced(sites: Sequence[Sequence[int | str]], names: Sequence[str]) -> list[Problem]:
    """Return the problems of *sites* that are not exactly the nodes *names*."""
    unknown = [entry for site in sites for entry in site if entry not in names and entry not in range(len(names))]
    if unknown:
        return [
            Problem("sites", repr(entry), nearest(entry, names) if isinstance(entry, str) else f"below {len(names)}")
            for entry in unknown
        ]
    ranks = [rank for site in _as_ranks(sites, names) for rank in site]
    missing = [name for rank, name in enumerate(names) if rank not in ranks]
    twice = [name for rank, name in enumerate(names) if ranks.count(rank) > 1]
    found = [f"{', '.join(missing)} at no site"] * bool(missing) + [f"{', '.join(twice)} twice"] * bool(twice)
    found += ["an empty site"] * (not all(sites))
    return [Problem("sites", each, "each node at exactly one site") for each in found]
