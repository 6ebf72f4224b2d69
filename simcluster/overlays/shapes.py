"""The functions that make an overlay's graph of ranks, by name.

A function takes the world size and, if the graph is random, a generator. Its keyword arguments are
the settings of the overlay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import networkx
import numpy as np
from pydantic import Field, PositiveInt

if TYPE_CHECKING:
    Graph = networkx.Graph[Any]
else:
    Graph = networkx.Graph  # at run time the class takes no type parameters

Probability = Annotated[float, Field(ge=0, le=1)]


class Misfit(ValueError):
    """The error for a setting that no graph with this number of nodes satisfies. Its message says
    what was expected.
    """


def ring(size: int) -> Graph:
    graph: Graph = networkx.cycle_graph(size) if size > 2 else networkx.path_graph(size)
    return graph


def torus(size: int, *, rows: PositiveInt | None = None) -> Graph:
    """Return a grid of ranks, numbered row by row, in which each row and each column is closed into
    a ring.

    It has *rows* rows; by default it is as square as possible.
    """
    rows = rows or max(d for d in range(1, int(size**0.5) + 1) if size % d == 0)
    columns, rest = divmod(size, rows)
    if rest or min(rows, columns) < 2:
        raise Misfit(f"a number of workers that makes at least 2 rows and 2 columns, which {size} does not")
    grid = networkx.grid_2d_graph(rows, columns, periodic=True)
    return networkx.relabel_nodes(grid, {(row, column): row * columns + column for row, column in grid})


def hypercube(size: int) -> Graph:
    """Return the graph with an edge between any two ranks whose binary numbers differ in exactly
    one bit.
    """
    if size & (size - 1):
        raise Misfit(f"a power of two of workers, not {size}")
    return _joined(size, ((rank, rank ^ (1 << bit)) for bit in range(hops(size)) for rank in range(size)))


def exponential(size: int) -> Graph:
    """Return the directed graph with edges from each rank to the ranks 1, 2, 4, ... after it.

    See Assran et al. 2019 and Ying et al. 2021.
    """
    pairs = ((rank, (rank + 2**hop) % size) for hop in range(hops(size)) for rank in range(size))
    return _joined(size, pairs, directed=True)


def one_peer_exponential(size: int, round_: int) -> Graph:
    """Return the graph with one edge of `exponential` per rank: in round t, to the rank 2^(t mod
    log2 n) after it.
    """
    distance = 2 ** (round_ % hops(size))
    return _joined(size, ((rank, (rank + distance) % size) for rank in range(size)), directed=True)


def hops(size: int) -> int:
    """Return log2 of *size*, rounded up; at least 1."""
    return max(1, (size - 1).bit_length())


def random_regular(size: int, rng: np.random.Generator, *, degree: PositiveInt) -> Graph:
    if degree >= size:
        raise Misfit(f"degree below the number of workers, {size}")
    if degree * size % 2:
        raise Misfit(f"an even number of edge ends, which {size} workers of degree {degree} do not have")
    graph: Graph = networkx.random_regular_graph(degree, size, seed=_seed(rng))
    return graph


def small_world(size: int, rng: np.random.Generator, *, degree: PositiveInt, rewire: Probability = 0.1) -> Graph:
    """Return a ring in which each rank has edges to its *degree* nearest neighbours, and each edge
    is rewired at random with probability *rewire*.

    See Watts and Strogatz 1998.
    """
    if degree >= size or degree % 2:
        raise Misfit(f"an even degree below the number of workers, {size}")
    graph: Graph = networkx.watts_strogatz_graph(size, degree, rewire, seed=_seed(rng))
    return graph


def erdos_renyi(size: int, rng: np.random.Generator, *, probability: Probability) -> Graph:
    """Return a graph in which each pair of ranks has an edge with *probability*."""
    graph: Graph = networkx.gnp_random_graph(size, probability, seed=_seed(rng))
    return graph


def edges(size: int, *, edges: list[tuple[int, int]], directed: bool = False) -> Graph:
    """Return the graph with *edges*, which are pairs of ranks: (sender, receiver) if *directed*. An
    edge from a rank to itself is dropped.
    """
    for rank in (rank for pair in edges for rank in pair):
        if not 0 <= rank < size:
            raise Misfit(f"edges between ranks 0 to {size - 1}, not {rank}")
    return _joined(size, (pair for pair in edges if pair[0] != pair[1]), directed=directed)


def _joined(size: int, pairs: Iterable[tuple[int, int]], *, directed: bool = False) -> Graph:
    graph: Graph = networkx.DiGraph() if directed else networkx.Graph()
    graph.add_nodes_from(range(size))
    graph.add_edges_from(pairs)
    return graph


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**32))


PLAIN: Mapping[str, Callable[..., Any]] = {
    "complete": lambda size: networkx.complete_graph(size),
    "edges": edges,
    "exponential": exponential,
    "hypercube": hypercube,
    "line": lambda size: networkx.path_graph(size),
    "ring": ring,
    "star": lambda size: networkx.star_graph(size - 1),  # rank 0 is the centre
    "torus": torus,
}
DRAWN: Mapping[str, Callable[..., Any]] = {
    shape.__name__: shape for shape in (erdos_renyi, random_regular, small_world)
}
