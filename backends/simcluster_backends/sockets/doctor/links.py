"""Compare the links that packets really take with those of the topology."""

from __future__ import annotations

from simcluster.topology import Topology
from simcluster.topology.model.parallel import addressed
from simcluster_backends.sockets.doctor.problems import Trouble
from simcluster_backends.sockets.launcher.machine_messages import MachineFacts


def links_taken(topology: Topology, node: str, facts: MachineFacts) -> tuple[dict[str, str], list[Trouble]]:
    """Return peer -> the link and interface of connections from *node*, and troubles with them.

    A node connects to peers of lower ranks; both ends use that connection. *facts* are those of its
    machine. Links without a `subnet` cannot be told apart.
    """
    own = [link for link in topology.links if node in (link.a, link.b) and link.subnet]
    found: dict[str, str] = {}
    wrong = []
    for peer in topology.workers[: topology.workers.index(node)]:
        source = facts.sources.get(topology.nodes[peer].address or "")
        if not own or not source:
            continue
        link, planned = addressed(own, source), topology.route(node, peer)[0].link
        place = f"{facts.interfaces.get(source, 'an unknown interface')} ({source})"
        found[peer] = f"{link.name if link else 'no link of the topology'}, {place}"
        if planned.subnet and link is not planned:
            what = f"packets to {peer} leave over {found[peer]}, not over {planned.name} as in the topology"
            do = f"give {peer} an `address` in {planned.subnet}, or the topology the real link: docs/network.md"
            wrong.append(Trouble(what, do))
    return found, wrong
