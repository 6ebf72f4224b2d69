"""Names of the nodes of networkx graphs: the same in a topology and in an overlay on it."""

from __future__ import annotations

from typing import Any


def node_name(node: Any) -> str:
    """Return the name of *node*: the node (0, 1) of a grid is called 0_1."""
    return "_".join(map(str, node)) if isinstance(node, tuple) else str(node)
