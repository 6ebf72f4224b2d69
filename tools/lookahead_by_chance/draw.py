"""Programs drawn by seed. Three of four seeds are tame: most of their schedules can be computed."""

from __future__ import annotations

from random import Random
from typing import Any

from simcluster.collectives.schedules import SCHEDULES
from tools.lookahead_by_chance.program import Aside, Extras, Fault, Operation, Phase, Program

RATES_BPS = [125e6, 125e6, 125e6, 1e8, 3e7]
LATENCIES_S = [0.0, 25e-6, 25e-6, 70e-6, 1e-3]
LENGTHS = [0, 1, 2, 3, 5, 16, 64, 300, 1000, 4000, 4001, 16000, 16000, 40000]
PAUSES_S = [1e-6, 2e-6, 25e-6, 50e-6, 1e-3, *(4 * length / 125e6 for length in (997, 4000, 16000))]
"""Lengths of pauses. The last three equal transfer times of messages, so that events coincide."""

OFTEN = [("all_reduce", name) for name in ("ring", "ring", "binomial", "binomial", "recursive_doubling")] + [
    ("all_reduce", "halving_doubling"),
    ("all_reduce", "hierarchical"),
    ("all_gather", "ring"),
    ("all_gather", "recursive_doubling"),
    ("all_gather", "bruck"),
    ("reduce_scatter", "ring"),
    ("reduce_scatter", "pairwise"),
    ("all_to_all", "pairwise"),
    ("broadcast", "ring"),
]
"""Frequent collectives, which all have schedules that can be computed."""


def draw(seed: int) -> Program:
    """Return the program of *seed*."""
    rng, is_tame = Random(seed), seed % 4 > 0
    size = rng.choice([2, 3, 4, 4, 5, 6, 7, 8, 9])
    shapes: list[Any] = ["star"] * (20 if is_tame else 5) + ["ring", "complete", "two", "chain", "free"]
    return Program(
        seed=seed,
        size=size,
        shape=rng.choice(shapes),
        links=_links(rng, size),
        duplex="half" if rng.random() < (0.05 if is_tame else 0.17) else "full",
        extras=_extras(rng) if rng.random() < (0.03 if is_tame else 0.25) else {},
        model=rng.choice(["maxmin"] * 4 + ["lv08"]),
        inbox_bytes=rng.choice([10**9] * 9 + [0, 300, 6000, 30000]),
        threads=rng.choice([1, 1, 2]),
        faults=_faults(rng, size) if rng.random() < (0.04 if is_tame else 0.15) else [],
        phases=[_phase(rng, size, is_tame) for _ in range(rng.choice([1, 2, 2, 3]))],
    )


def _links(rng: Random, size: int) -> list[tuple[float, float]]:
    count = size * size  # enough for any shape
    if rng.random() < 0.6:
        return [(rng.choice(RATES_BPS), rng.choice(LATENCIES_S))] * count
    return [(rng.choice(RATES_BPS), rng.choice(LATENCIES_S)) for _ in range(count)]


def _extras(rng: Random) -> Extras:
    there_are = {
        "jitter_s": 1e-5,
        "loss": 0.01,
        "trace": 1,
        "background": 1,
        "background_flow": 1,
        "send_overhead_s": 1e-5,
        "recv_overhead_s": 1e-5,
        "host_bandwidth_Bps": 1e8,
        "send_buffer_bytes": rng.choice([500, 20000]),
        "ack_share": 0.022,
    }
    return {name: value for name, value in there_are.items() if rng.random() < 0.2}


def _faults(rng: Random, size: int) -> list[Fault]:
    kinds: list[Any] = ["crash", "restart", "hang", "slow"]
    return [
        Fault(rng.choice(kinds), rng.randrange(size), round(rng.uniform(0, 6e-3), 6), round(rng.uniform(1e-4, 4e-3), 6))
        for _ in range(rng.choice([1, 1, 2]))
    ]


def _phase(rng: Random, size: int, is_tame: bool) -> Phase:
    pauses, afters = rng.random() < (0.4 if is_tame else 0.7), list[Any]([*["shift", "serve"] * 2, "none", "compute"])
    return Phase(
        pauses_s=[_pause_s(rng) if pauses else 0.0 for _ in range(size)],
        how=[rng.choice(["sleep", "sleep", "compute", "works"]) for _ in range(size)],
        groups=[(ranks, _operation(rng, len(ranks), is_tame)) for ranks in _groups(rng, size)],
        is_named=rng.random() < 0.3,
        second=_operation(rng, size, is_tame) if rng.random() < (0.03 if is_tame else 0.1) else None,
        asides=_asides(rng, size) if rng.random() < (0.1 if is_tame else 0.5) else {},
        after=rng.choice(afters),
        shift=rng.randrange(1, size),
        timeout=(rng.randrange(size), _pause_s(rng)) if rng.random() < 0.05 else None,
    )


def _pause_s(rng: Random) -> float:
    return rng.choice([*[0.0] * 6, *PAUSES_S, round(rng.uniform(0, 3e-3), 6)])


def _groups(rng: Random, size: int) -> list[list[int]]:
    """Return one group of all ranks, one group of some ranks, or two groups, each in
    random order.
    """
    ranks, kind = list(range(size)), rng.random()
    if kind < 0.7 or size < 4:
        return [ranks]
    if rng.random() < 0.8:
        rng.shuffle(ranks)
    if kind < 0.85:
        return [ranks[: rng.randrange(2, size)]]
    cut = rng.randrange(2, size - 1)
    return [ranks[:cut], ranks[cut:]]


def _asides(rng: Random, size: int) -> dict[int, Aside]:
    kinds: list[Any] = ["send", "send", "burst", "compute", "sleep", "recv", "timeout"]
    return {
        rank: Aside(rng.choice(kinds), _pause_s(rng), rng.randrange(1, size))
        for rank in range(size)
        if rng.random() < 0.3
    }


def _operation(rng: Random, size: int, is_tame: bool) -> Operation:
    if rng.random() < (0.85 if is_tame else 0.0):
        name, schedule = rng.choice(OFTEN)
    else:
        name = rng.choice([*sorted(SCHEDULES), "all_reduce", "all_reduce"])
        schedule = rng.choice(sorted(SCHEDULES[name]))
    return Operation(
        name,
        schedule,
        _settings(rng, name, schedule, size),
        length=rng.choice([*LENGTHS, rng.randrange(5000)]),
        has_values=rng.random() < 0.1,  # schedules of rounds with values are not computed
        root=rng.randrange(size) if rng.random() < 0.3 else 0,
        is_uneven=rng.random() < 0.1,
        dtype=rng.choice(["float32", "float32", "float64"]),
    )


def _settings(rng: Random, name: str, schedule: str, size: int) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    has_first = schedule in ("binomial", "recursive_doubling", "halving_doubling")
    if has_first and name in ("all_reduce", "all_gather", "reduce_scatter"):
        settings["first"] = rng.choice(["near", "far"])
    if schedule == "hierarchical":
        settings["sites"] = [list(range(size // 2)), list(range(size // 2, size))] if size > 1 else [[0]]
    if schedule == "bandwidth_aware":
        settings |= {"weights": [rng.choice([1, 1, 2, 0.5]) for _ in range(size)], "pieces": rng.choice([1, 3])}
    if name == "all_reduce" and rng.random() < 0.3:
        settings["divisor"] = size
    return settings
