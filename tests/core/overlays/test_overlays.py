"""Overlays: who talks with whom, with doubly stochastic weights whose spectra are the textbook's; what is refused."""

from __future__ import annotations

import json
from math import cos, log2, pi
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcluster.errors import UsageError
from simcluster.overlays import KINDS, from_graph, overlay_for, overlay_of, spectral_gap, unbalanced
from simcluster.overlays.setting import resolved
from simcluster.topology import Topology

UNDIRECTED: list[Any] = [
    "ring",
    "line",
    "star",
    "complete",
    {"kind": "random_regular", "degree": 2},
    {"kind": "small_world", "degree": 2, "rewire": 0.3},
    {"kind": "erdos_renyi", "probability": 0.6},
    {"kind": "erdos_renyi", "probability": 0.6, "every": 2},
]
ANY_SIZE: list[Any] = [*UNDIRECTED, "exponential", "one_peer_exponential"]


def second(setting: Any, size: int) -> float:
    """|lambda_2| of W."""
    return 1.0 - spectral_gap(overlay_of(setting, size, 0).matrix())


@given(st.sampled_from(ANY_SIZE), st.integers(3, 12), st.integers(0, 3), st.integers(0, 5))
def test_weights_are_doubly_stochastic_and_a_constant_is_a_fixed_point(
    setting: Any, size: int, seed: int, round_: int
) -> None:
    matrix = overlay_of(setting, size, seed).matrix(round_)
    assert matrix.min() >= 0
    assert np.abs(matrix.sum(axis=0) - 1).max() <= 1e-12, "a ring's rows that sum to 7/6 are a known mistake"
    assert np.abs(matrix @ np.full(size, 3.5) - 3.5).max() <= 1e-12


@given(st.sampled_from(UNDIRECTED), st.integers(4, 9), st.data())
def test_weights_stay_doubly_stochastic_among_those_that_live(setting: Any, size: int, data: st.DataObject) -> None:
    lost = data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=size - 2))
    living = [rank for rank in range(size) if rank not in lost]
    matrix = overlay_of(setting, size, 0).matrix(0, lost)
    among = matrix[np.ix_(living, living)]
    assert np.abs(among.sum(axis=0) - 1).max() <= 1e-12
    assert np.abs(among.sum(axis=1) - 1).max() <= 1e-12
    assert not matrix[sorted(lost)].any()
    assert not matrix[:, sorted(lost)].any()


@given(st.integers(2, 9), st.data())
def test_shares_keep_every_sum_on_any_directed_graph_and_after_losses(size: int, data: st.DataObject) -> None:
    ring = [[rank, (rank + 1) % size] for rank in range(size)]  # strongly connected, with anything on top
    pairs = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1))
    edges = ring + [list(pair) for pair in data.draw(st.lists(pairs, max_size=8))]
    overlay = overlay_of({"kind": "edges", "edges": edges, "directed": True}, size, 0)
    lost = data.draw(st.sets(st.integers(0, size - 1), max_size=size - 1))
    living = [rank for rank in range(size) if rank not in lost]
    assert np.abs(overlay.push_matrix(0, lost)[:, living].sum(axis=0) - 1).max() <= 1e-12


@pytest.mark.parametrize("size", [3, 4, 5, 7, 12, 16])
def test_the_second_eigenvalue_of_a_ring(size: int) -> None:
    assert second("ring", size) == pytest.approx((1 + 2 * cos(2 * pi / size)) / 3, abs=1e-12)


@pytest.mark.parametrize("side", [3, 4, 5, 6])
def test_the_second_eigenvalue_of_a_square_torus(side: int) -> None:
    assert second("torus", side * side) == pytest.approx((3 + 2 * cos(2 * pi / side)) / 5, abs=1e-12)


@pytest.mark.parametrize("size", [2, 4, 8, 16, 32])
def test_the_second_eigenvalue_of_a_hypercube(size: int) -> None:
    assert second("hypercube", size) == pytest.approx(1 - 2 / (1 + log2(size)), abs=1e-12)


@pytest.mark.parametrize("size", [4, 8, 16, 32])
def test_the_gap_of_the_static_exponential_graph(size: int) -> None:
    assert 1 - second("exponential", size) == pytest.approx(2 / (1 + log2(size)), abs=1e-12)


@pytest.mark.parametrize("size", [2, 4, 8, 16, 32])
def test_one_peer_exponential_averages_exactly_in_log2_n_rounds(size: int) -> None:
    overlay, product = overlay_of("one_peer_exponential", size, 0), np.eye(size)
    for round_ in range(int(log2(size))):
        product = overlay.matrix(round_) @ product
    assert np.abs(product - 1 / size).max() <= 1e-15
    # Any log2 n rounds in a row will do, as the rounds are circulant and commute.
    later = np.eye(size)
    for round_ in range(5, 5 + int(log2(size))):
        later = overlay.matrix(round_) @ later
    assert np.abs(later - 1 / size).max() <= 1e-15


def test_one_peer_exponential_of_twelve_never_averages_exactly() -> None:
    overlay, product = overlay_of("one_peer_exponential", 12, 0), np.eye(12)
    for round_ in range(12):
        product = overlay.matrix(round_) @ product
        assert np.abs(product - 1 / 12).max() > 1e-6, round_


def test_a_complete_graph_averages_in_one_round_and_a_line_is_slower_than_a_ring() -> None:
    assert spectral_gap(overlay_of("complete", 7, 0).matrix()) == pytest.approx(1.0)
    gaps = [
        spectral_gap(overlay_of(kind, 16, 0).matrix()) for kind in ("complete", "hypercube", "torus", "ring", "line")
    ]
    # On 16 nodes the torus is the hypercube: their gaps are equal but for rounding.
    assert gaps == pytest.approx(sorted(gaps, reverse=True))


def test_every_kind_has_the_edges_of_its_name() -> None:
    assert overlay_of("line", 4, 0).round(0).receivers == ((1,), (0, 2), (1, 3), (2,))
    assert overlay_of("star", 4, 0).round(0).receivers == ((1, 2, 3), (0,), (0,), (0,))
    assert overlay_of({"kind": "torus", "rows": 2}, 6, 0).round(0).receivers[0] == (1, 2, 3)
    assert overlay_of("hypercube", 8, 0).receivers(5) == (1, 4, 7)
    assert overlay_of("exponential", 7, 0).receivers(6) == (0, 1, 3)
    assert overlay_of("exponential", 7, 0).senders(0) == (3, 5, 6)
    assert [overlay_of("one_peer_exponential", 7, 0).receivers(0, t) for t in range(4)] == [(1,), (2,), (4,), (1,)]
    regular = overlay_of({"kind": "random_regular", "degree": 3}, 8, 0)
    assert {len(regular.receivers(rank)) for rank in range(8)} == {3}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("file", "cycle", "edges")])
def test_one_rank_alone_has_no_neighbours_whatever_the_kind(kind: str) -> None:
    needs = {"random_regular": {"degree": 3}, "small_world": {"degree": 2}, "erdos_renyi": {"probability": 0.1}}
    overlay = overlay_of({"kind": kind, **needs.get(kind, {})}, 1, 0)
    assert overlay.neighbours(0) == ()
    assert overlay.weights(0) == {0: 1.0}


def test_what_is_drawn_is_the_same_for_everybody_and_another_for_another_seed() -> None:
    setting = {"kind": "random_regular", "degree": 3}
    drawn = [overlay_of(setting, 10, seed).round(0) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    own = [overlay_of({**setting, "seed": 7}, 10, seed).round(0) for seed in (1, 2)]
    assert own[0] == own[1], "a seed of its own does not depend on the run's"


def test_a_graph_is_drawn_anew_every_so_many_rounds() -> None:
    overlay = overlay_of({"kind": "erdos_renyi", "probability": 0.5, "every": 3}, 8, 0)
    rounds = [overlay.round(number) for number in range(7)]
    assert rounds[0] == rounds[1] == rounds[2] != rounds[3] == rounds[5] != rounds[6]
    assert overlay.neighbours(0) == tuple(range(1, 8)), "it may come to anybody"


def test_a_cycle_goes_through_its_parts() -> None:
    overlay = overlay_of({"kind": "cycle", "of": [{"kind": "edges", "edges": [[0, 1]]}, "one_peer_exponential"]}, 4, 0)
    assert [overlay.receivers(0, number) for number in range(5)] == [(1,), (1,), (1,), (2,), (1,)]


@pytest.mark.parametrize("suffix", ["graphml", "json", "links.json"])
def test_a_file_says_the_same_as_its_edges(suffix: str, tmp_path: Path) -> None:
    graph: Any = networkx.relabel_nodes(networkx.petersen_graph(), lambda rank: f"pi{rank}")
    path = tmp_path / f"friends.{suffix}"
    if suffix == "graphml":
        networkx.write_graphml(graph, path)
    else:
        edges = "links" if suffix == "links.json" else "edges"
        path.write_text(json.dumps(networkx.node_link_data(graph, edges=edges)))
    known = resolved({"kind": "file", "path": path.name}, tmp_path, [f"pi{rank}" for rank in range(10)])
    overlay = overlay_of(known, 10, 0)
    assert overlay.round(0) == overlay_of(networkx.petersen_graph(), 10, 0).round(0)
    assert "path" not in known, "a run folder needs no file"


def test_a_grid_is_an_overlay_on_the_topology_made_of_it() -> None:
    grid = networkx.grid_2d_graph(2, 3)
    names = Topology.from_networkx(grid, device="raspberry-pi-5", bandwidth="1 Gbps", latency="1 ms").workers
    overlay = overlay_of(resolved(from_graph(grid), names=names), 6, 0)
    assert overlay.receivers(1) == (0, 2, 4)  # 0_1 is between 0_0 and 0_2, and above 1_1


def test_a_directed_graph_keeps_its_directions() -> None:
    graph: Any = networkx.DiGraph([(0, 1), (1, 2), (2, 0), (0, 2)])
    overlay = overlay_of(from_graph(graph), 3, 0)
    assert overlay.receivers(0) == (1, 2)
    assert overlay.senders(0) == (2,)
    assert not overlay.balanced
    with pytest.raises(UsageError, match="sgp takes others"):
        overlay_for(from_graph(graph), 3, 0, unbalanced)


@pytest.mark.parametrize(
    ("setting", "size", "words"),
    [
        ({"kind": "edges", "edges": [[0, 1], [2, 3]]}, 5, r"one of 3 parts: \{0, 1\} \{2, 3\} \{4\}"),
        ({"kind": "edges", "edges": [[0, 1], [1, 2]], "directed": True}, 3, r"only within \{0\} \{1\} \{2\}"),
        ({"kind": "erdos_renyi", "probability": 0.0}, 3, "one of 3 parts"),
        ("torus", 7, "at least 2 rows and 2 columns, which 7 does not"),
        ({"kind": "torus", "rows": 4}, 10, "which 10 does not"),
        ("hypercube", 6, "power of two of workers, not 6"),
        ({"kind": "random_regular", "degree": 4}, 4, "degree below the number of workers, 4"),
        ({"kind": "random_regular", "degree": 3}, 7, "7 workers of degree 3"),
        ({"kind": "small_world", "degree": 3}, 8, "an even degree"),
        ({"kind": "edges", "edges": [[0, 9]]}, 3, "ranks 0 to 2, not 9"),
        ({"kind": "edges", "edges": [["pi4", 0]]}, 3, "not 'pi4'"),
        ({"kind": "edges", "edges": [[0, 1, 2]]}, 3, "two ends"),
        ("rign", 3, "did you mean 'ring'"),
        ({"kind": "random_regular", "degre": 3}, 8, "'degre': did you mean 'degree'"),
        ({"kind": "random_regular"}, 8, "degree: a value"),
        ({"kind": "random_regular", "degree": "3"}, 8, "degree: a valid integer"),
        ({"kind": "ring", "seed": 1}, 8, "'seed'"),
        ({"degree": 3}, 8, "a kind: "),
        ({"kind": "file", "path": "nowhere.json"}, 3, "file that can be read"),
        ({"kind": "file", "path": "x.yaml", "pth": 1}, 3, "did you mean 'path'"),
        ("file", 3, "path"),
        ("cycle", 3, "of"),
        ({"kind": "cycle", "of": []}, 3, "a list of overlays"),
        ({"kind": "cycle", "of": [{"kind": "cycle", "of": ["ring"]}]}, 3, "no cycle within a cycle"),
    ],
    ids=str,
)
def test_what_is_no_overlay_is_told_in_words(setting: Any, size: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        overlay_of(setting, size, 0)


def test_an_entity_in_graphml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.graphml"
    path.write_text('<!DOCTYPE x [<!ENTITY a "b">]><graphml/>')
    with pytest.raises(UsageError, match="without a DOCTYPE"):
        overlay_of({"kind": "file", "path": str(path)}, 3, 0)


@given(st.sampled_from(ANY_SIZE), st.integers(2, 12))
def test_the_two_sides_connect_everybody_and_every_rank_has_a_partner(setting: Any, size: int) -> None:
    try:
        overlay = overlay_of(setting, size, 0)
    except UsageError:
        return  # this one needs more ranks
    edges = [
        (a, b) for a in range(size) for b in overlay.neighbours(a) if (a in overlay.asking) != (b in overlay.asking)
    ]
    across: Any = networkx.Graph(edges)
    assert sorted(across) == list(range(size))
    assert networkx.is_connected(across)


def test_a_complete_graph_is_halved() -> None:
    assert overlay_of("complete", 6, 0).asking == {0, 2, 4}
    assert overlay_of("star", 4, 0).asking == {0}


def test_an_experiment_refuses_an_overlay_with_everything_else_before_anything_is_written(tmp_path: Path) -> None:
    import simcluster

    with pytest.raises(UsageError) as error:
        simcluster.run(
            {
                "topology": {"generator": "star", "workers": 5},
                "algorithm": {"name": "d_psgd", "overlay": {"kind": "edges", "edges": [["n0", "n1"], ["n3", 4]]}},
                "workload": {"name": "quadratic", "batch_size": 0},
                "stop": {"steps": 1},
            },
            out=tmp_path / "run",
        )
    words = str(error.value)
    assert "algorithm.overlay" in words
    assert "{0, 1} {2} {3, 4}" in words
    assert "batch_size" in words
    assert not (tmp_path / "run").exists()
