"""The graphs of overlays, by name: edges between ranks.

A shape is a function of the world size and, if random, of a generator; its keyword arguments are its settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import networkx
import numpy as np
from pydantic import Field, PositiveInt

if TYPE_CHECKING:
    Graph: TypeAlias = networkx.Graph[Any]
else:
    Graph = networkx.Graph  # knows no parameters at run time

Probability = Annotated[float, Field(ge=0, le=1)]


class Misfit(ValueError):
    """No such graph exists for the given number of nodes; the text is what was expected."""


def ring(size: int) -> Graph:
    graph: Graph = networkx.cycle_graph(size) if size > 2 else networkx.path_graph(size)
    return graph


def torus(size: int, *, rows: PositiveInt | None = None) -> Graph:
    """Return a grid, row by row, with rings as rows and columns: as square as possible, or of *rows* rows."""
    rows = rows or max(d for d in range(1, int(size**0.5) + 1) if size % d == 0)
    columns, rest = divmod(size, rows)
    if rest or min(rows, columns) < 2:
        raise Misfit(f"a number of workers that makes at least 2 rows and 2 columns, which {size} does not")
    grid = networkx.grid_2d_graph(rows, columns, periodic=True)
    return networkx.relabel_nodes(grid, {(row, column): row * columns + column for row, column in grid})


def hypercube(size: int) -> Graph:
    """Join ranks that differ in one bit."""
    if size & (size - 1):
        raise Misfit(f"a power of two of workers, not {size}")
    return _joined(size, ((rank, rank ^ (1 << bit)) for bit in range(hops(size)) for rank in range(size)))


def exponential(size: int) -> Graph:
    """Return the directed graph from each rank to those 1, 2, 4, ... ahead (Assran et al. 2019; Ying et al. 2021)."""
    pairs = ((rank, (rank + 2**hop) % size) for hop in range(hops(size)) for rank in range(size))
    return _joined(size, pairs, directed=True)


def one_peer_exponential(size: int, round_: int) -> Graph:
    """Return one edge per rank of `exponential`: in round t to the rank 2^(t mod log2 n) ahead."""
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
    """Return a ring with edges to *degree* nearest neighbours, a share *rewire* of them rewired (Watts and Strogatz
    1998)."""
    if degree >= size or degree % 2:
        raise Misfit(f"an even degree below the number of workers, {size}")
    graph: Graph = networkx.watts_strogatz_graph(size, degree, rewire, seed=_seed(rng))
    return graph


def erdos_renyi(size: int, rng: np.random.Generator, *, probability: Probability) -> Graph:
    """Join every pair with this *probability*."""
    graph: Graph = networkx.gnp_random_graph(size, probability, seed=_seed(rng))
    return graph


def edges(size: int, *, edges: list[tuple[int, int]], directed: bool = False) -> Graph:
    """Join pairs of ranks, (sender, receiver) if *directed*."""
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


PLAIN: Final[Mapping[str, Callable[..., Any]]] = {
    "complete": lambda size: networkx.complete_graph(size),
    "edges": edges,
    "exponential": exponential,
    "hypercube": hypercube,
    "line": lambda size: networkx.path_graph(size),
    "ring": ring,
    "star": lambda size: networkx.star_graph(size - 1),  # rank 0 is the centre
    "torus": torus,
}
DRAWN: Final[Mapping[str, Callable[..., Any]]] = {
    shape.__name__: shape for shape in (erdos_renyi, random_regular, small_world)
}
