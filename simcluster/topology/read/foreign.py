"""Turn networkx graphs into the document of a YAML file.

The attributes of nodes and edges are the keys of the YAML file, with the same units, or names of
`simcluster.topology.read.formats.cluster.FOREIGN`. Other attributes are ignored, and a log line names them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import networkx

from simcluster.documents.graph_names import node_name
from simcluster.errors import Problem, UsageError, raise_all
from simcluster.topology.presets.generators import Made
from simcluster.topology.read.formats.cluster import directed, of_graph, once, renamed, twice

log = logging.getLogger("simcluster.topology")


def from_graph(graph: networkx.Graph[Any]) -> Made:
    """Return the document of a networkx graph; `node_name` makes the names of its nodes.

    Raise UsageError if the graph is directed, or if two nodes would have the same name.
    """
    if not hasattr(graph, "nodes"):
        expected = "a graph of networkx; of a matrix: networkx.from_numpy_array(matrix)"
        raise UsageError("graph", f"a {type(graph).__name__}", expected)
    raise_all((directed(None) if graph.is_directed() else []) + twice(graph.nodes, None))
    nodes = [(node_name(node), data) for node, data in graph.nodes(data=True)]
    edges = [((node_name(a), node_name(b)), attributes) for a, b, attributes in graph.edges(data=True)]
    found = of_graph(graph.graph, nodes, edges)
    for warning in (*renamed(graph.nodes), *found.warnings):
        log.warning(warning)
    return found.document()


_EXAMPLES = {"device": "raspberry-pi-5", "bandwidth": "'1 Gbps'", "latency": "'1 ms'"}


def summed(problems: Sequence[Problem], *, of_file: bool) -> list[Problem]:
    """Return *problems* with those of the same mistake in one: missing devices, numbers and units.

    Otherwise a graph without attributes would cause one problem for each node and edge. *of_file*
    says whether the graph was a file, for which a command has options.
    """
    nodes = [one for one in problems if one.found == "no device"]
    edges = [one for one in problems if one.found == "nothing" and one.key.endswith(("].bandwidth", "].latency"))]
    unitless = [one for one in problems if one.found.endswith(" without a unit") and one.key.startswith("links[")]
    left_out = {id(one) for one in (*nodes, *edges, *unitless)}
    rest = [*(one for one in problems if id(one) not in left_out), *once(unitless)]
    if not nodes and not edges:
        return rest
    lacks = {"device": f"{_count(len(nodes), 'node')} without a device"} if nodes else {}
    for key in ("bandwidth", "latency"):
        times = sum(one.key.endswith(key) for one in edges)
        lacks |= {key: f"{_count(times, 'edge')} without a {key}"} if times else {}
    if of_file:
        options = " ".join(f"--{key} {_EXAMPLES[key]}" for key in lacks)
        expected = f"{options}, for all that lack them (in Python: arguments of load); "
        expected += "`simcluster calibrate` measures them"
    else:
        expected = "these as attributes, or in Python Topology.from_networkx(graph, device='raspberry-pi-5', "
        expected += "bandwidth='1 Gbps', latency='1 ms'), which gives them to all that lack them"
    return [Problem("graph", ", ".join(lacks.values()), expected, (nodes or edges)[0].file), *rest]


def _count(times: int, what: str) -> str:
    return f"{times} {what}{'s' if times > 1 else ''}"
