"""Find the links that carry nothing, and describe how messages choose among parallel links."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain, combinations

from simcluster.topology.model.model import Topology
from simcluster.topology.model.parallel import RULES, LinkChoice
from simcluster.units import format_size

MOST_WORKERS = 64
MOST_PARTS = 4096
"""Limits on the workers, and on the nodes and links, of a cluster with all routes examined: they take 0.3 s."""

MOST_NAMED = 8
"""Limit on the links, and on the pairs of nodes, that a description names."""


def idle_links(topology: Topology) -> list[str]:
    """Return the names of the links that no route between workers uses, nor background between nodes.

    Return [] for a tree, which has only one route for each pair, and for a cluster that is too large.
    """
    workers = topology.workers
    parts = len(topology.nodes) + len(topology.links)
    if len(topology.links) < len(topology.nodes) or not 2 <= len(workers) <= MOST_WORKERS or parts > MOST_PARTS:
        return []
    background = ((flow.source, flow.target) for flow in topology.background)
    idle = dict.fromkeys(link.name for link in topology.links)
    for pair in chain(background, combinations(workers, 2)):
        for hop in topology.used(*pair):
            idle.pop(hop.link.name, None)
        if not idle:  # as a rule after a few pairs, and every run asks
            break
    return [*idle]


def idle_words(topology: Topology) -> Iterator[str]:
    """Yield the line that names the links that carry nothing, if there are any."""
    if names := idle_links(topology):
        rest = len(names) - MOST_NAMED
        more = f" and {rest} more" if rest > 0 else ""
        yield f"no message takes {', '.join(names[:MOST_NAMED])}{more}: all routes use other links"


def parallel_words(topology: Topology) -> Iterator[str]:
    """Yield the rule by which messages choose among parallel links, and the choices between the first nodes."""
    rule = topology.parallel
    words = f"{RULES[rule]} (`parallel: {rule}`)" if isinstance(rule, str) else f"the first of {', '.join(rule)}"
    pairs = [(ends, found) for ends, found in topology.bundles.items() if found[0].parts[0][0].a == ends[0]]
    if pairs:
        yield f"parallel links: a message takes {words}"
    elif rule != "shortest":
        yield f"parallel links: none, so `parallel: {rule}` changes nothing"
    for (a, b), found in pairs[:MOST_NAMED]:
        yield f"  {a} to {b}: {', larger '.join(_choice(one) for one in found)}"
    if len(pairs) > MOST_NAMED:
        yield f"  and between {len(pairs) - MOST_NAMED} more pairs of nodes"


def simulated_only(topology: Topology) -> Iterator[str]:
    """Yield a line if real nodes do not follow the rule for parallel links."""
    if topology.bundles and topology.parallel != "address":
        rule = topology.parallel if isinstance(topology.parallel, str) else "a preference"
        yield f"parallel: {rule} holds in the simulator only; a real message takes the link of its peer's address"


def _choice(one: LinkChoice) -> str:
    if len(one.parts) > 1:
        return ", ".join(f"{100 * share:.3g} % over {link.name}" for link, share in one.parts)
    size = "" if math.isinf(one.most_bytes) else f"up to {format_size(int(one.most_bytes))} "
    return f"{size}over {one.parts[0][0].name}"
