"""A run without short cuts, message by message, has the times, bytes, records and weights of one with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simcluster_backends.sim.cluster import SimCluster

import simcluster
from simcluster.errors import UsageError
from simcluster.runs.record import NodeRecord
from simcluster.topology import Device, Link, Node, Topology
from simcluster.transport import Transport
from tests.backends.sim.lookahead.oracle import Never, Skipping
from tests.core.algorithms.trained import Trained, train
from tests.support.clusters import star
from tools.lookahead_by_chance.compare import Outcome, outcome
from tools.lookahead_by_chance.draw import draw

ALGORITHMS: list[tuple[str, dict[str, Any]]] = [
    *(("all_reduce_dp", {"schedule": name}) for name in ("ring", "binomial", "recursive_doubling", "halving_doubling")),
    ("local_sgd", {"interval": 2}),
    ("zero", {}),
    ("zero", {"reduce": "pairwise", "gather": "bruck"}),
    ("sync_ps", {}),
    ("ssp", {}),
    ("edp", {"pull_interval": 2}),
    ("d_psgd", {}),
    ("diloco", {"interval": 2}),
]
WORK = {"work_overhead_s": 1e-3}


def uneven(size: int) -> Topology:
    names = [f"n{rank}" for rank in range(size)]
    nodes = {name: Node(name, Device("device", 1e12 * (1 + rank), **WORK)) for rank, name in enumerate(names)}
    links = [Link(name, "sw", [125e6, 3e7][rank % 2], [25e-6, 1e-3][rank % 2]) for rank, name in enumerate(names)]
    return Topology("uneven", nodes | {"sw": Node("sw")}, tuple(links))


def racks(size: int) -> Topology:
    nodes = {f"n{rank}": Node(f"n{rank}", Device("device", 1e12, **WORK)) for rank in range(size)}
    links = [Link(f"n{rank}", f"s{rank % 2}", 1e6, 1e-5) for rank in range(size)]
    return Topology("racks", nodes | {"s0": Node("s0"), "s1": Node("s1")}, (*links, Link("s0", "s1", 2e6, 1e-4)))


def even(size: int) -> Topology:
    return star(size, **{f"n{rank}": Device("device", 1e12, **WORK) for rank in range(size)})


def in_time(record: NodeRecord) -> str:
    """The record, with its spans in the order of their times; a loss may be nan, which equals nothing but its text."""
    return repr(replace(record, spans=sorted(record.spans)))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(ALGORITHMS),
    st.sampled_from([even, uneven, racks]),
    st.integers(2, 9),
    st.sampled_from(["real", "none"]),
    st.sampled_from([None, "crash", "restart, after: 2 ms", "slow, factor: 3, for: 2 ms", "hang, for: 2 ms"]),
    st.floats(0.0, 8.0),
)
def test_an_algorithm_is_the_same(
    algorithm: tuple[str, dict[str, Any]], shape: Any, size: int, numerics: str, kind: str | None, at_ms: float
) -> None:
    name, options = algorithm
    faults = [] if kind is None else [f"kind: {kind}, node: n1, at: {at_ms:.4f} ms"]

    def run(*, shortcuts: bool) -> Trained:
        return train(name, shape(size), steps=4, numerics=numerics, faults=faults, shortcuts=shortcuts, **options)

    quick, plain = run(shortcuts=True), run(shortcuts=False)
    assert [repr(result) for result in quick.results] == [repr(result) for result in plain.results]
    if not any(isinstance(result, BaseException) for result in quick.results):
        assert [in_time(record) for record in quick.records] == [in_time(record) for record in plain.records]
    assert all(mine.is_meta or mine.equal(others) for mine, others in zip(quick.vectors, plain.vectors, strict=True))


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1_000_000))
def test_a_program_of_collectives_is_the_same(seed: int) -> None:
    program = draw(seed)
    # Without faults, and without acts of one rank that happen in the same instant.
    phases = [replace(phase, asides={}, second=None, timeout=None) for phase in program.phases]
    program = replace(program, phases=phases, faults=[])

    def in_order(found: Outcome) -> Outcome:
        return found._replace(spans=[sorted(spans) for spans in found.spans])

    plain, _ = outcome(program, Never, shortcuts=False)
    assert in_order(outcome(program, Skipping)[0]) == in_order(plain)


def test_a_run_has_the_same_summary_without_short_cuts_and_says_so(tmp_path: Path) -> None:
    def run(choice: Any) -> dict[str, Any]:
        out, options = tmp_path / str(choice), {"shortcuts": choice}
        keys: dict[str, Any] = {"stop": {"steps": 3}, "algorithm": "all_reduce_dp"}
        return simcluster.run("quickstart", out=out, report=False, options=options, **keys).summary

    found = [run(choice) for choice in (True, "exchange+rounds", False)]
    assert [summary.pop("shortcuts", None) for summary in found] == [None, "exchange+rounds", "none"]
    for summary in found:
        del summary["wall_s"], summary["trace_sha256"]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("choice", "names"),
    [(True, {"exchange", "rounds_ahead"}), ("lazy+exchange", {"exchange"}), ("memory", None), (False, None)],
)
def test_a_node_has_the_short_cuts_that_are_kept(choice: bool | str, names: set[str] | None) -> None:
    async def body(node: Transport) -> set[str] | None:
        fast = node.fast
        return fast and {name for name in fast.__dataclass_fields__ if getattr(fast, name) is not None}

    cluster = SimCluster(star(1), shortcuts=choice)
    assert cluster.run([body]) == [names]


@pytest.mark.parametrize("choice", ["yes", "exchange+ring", "", 1])
def test_an_unknown_short_cut_is_refused(choice: object, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected true, false, or some of exchange"):
        simcluster.run("quickstart", out=tmp_path / "run", options={"shortcuts": choice})
