"""Read what tools say of machines and their wires: nvidia-smi, Slurm, containerlab."""

from __future__ import annotations

import re
from typing import Any

from simcluster.documents.graph_names import node_name
from simcluster.documents.yaml import loads
from simcluster.errors import UsageError, raise_all
from simcluster.topology.read.formats.cluster import ForeignCluster, of_graph, twice
from simcluster.topology.read.formats.hosts import expand

NVLINK_GBPS = 200
"""Rate of one NVLink of generations 2 to 4, each way: 25 GB/s."""

MOST_NVLINKS = 18
"""NVLinks of a GPU of generation 4; a row with more in all counts the same links once per peer, through NVSwitch."""

MOST_RANGE = 10_000
"""Limit on the characters of nodes in short, such as node[01-03,07]."""

_PCIE = ("PIX", "PXB", "PHB", "NODE", "SYS")
_Row = tuple[int | None, str, Any, Any]
"""(line, name of a switch, its nodes, its switches); nodes and switches are lists in short, or None."""
_NO_RATE = "the file has no rates"


def read_nvidia(text: str, file: str) -> ForeignCluster:
    """Return the GPUs of `nvidia-smi topo -m`: NVLinks between pairs or to one NVSwitch, all others through PCIe.

    PCIe's paths are one switch, as each GPU has one slot; the file does not have its rate.
    """
    rows = [(number, re.sub(r"\x1b\[\d*m", "", line).split()) for number, line in enumerate(text.split("\n"), 1)]
    head = next(words for _, words in rows if words)
    names = [word for word in head if re.fullmatch(r"GPU\d+|NIC\d+|mlx\d_\d+", word)]
    gpus = [name for name in names if name.startswith("GPU")]
    table = {words[0]: (number, words[1:]) for number, words in rows if words and words[0] in gpus and "X" in words[1:]}
    found = ForeignCluster(notes=[f"NV4 is 4 NVLinks of {NVLINK_GBPS // 8} GB/s each way (generations 2 to 4)"])
    over_pcie = dict.fromkeys(gpus, len(gpus) < 2)
    counts = {gpu: list(map(_nvlinks, table.get(gpu, (1, []))[1][: len(names)])) for gpu in gpus}
    is_switched = any(sum(row) > MOST_NVLINKS for row in counts.values())
    for place, gpu in enumerate(gpus):
        number, ways = table.get(gpu, (1, []))
        if len(ways) < len(names):
            raise UsageError(
                gpu, f"{len(ways)} columns", f"a row with {len(names)}, as in the first line", file, number
            )
        for other in gpus[place + 1 :]:
            way = ways[names.index(other)]
            if _nvlinks(way):
                if not is_switched:
                    found.link(gpu, other, way, bandwidth=f"{NVLINK_GBPS * _nvlinks(way)} Gbps")
            elif way in _PCIE:
                over_pcie[gpu] = over_pcie[other] = True
            else:
                raise UsageError(f"{gpu}-{other}", repr(way), f"NV# or one of {', '.join(_PCIE)}", file, number)
    # Only PCIe forwards: without a direct NVLink, a message does not cross a third GPU.
    found.nodes |= {gpu: {"gateway": False} for gpu in gpus}
    if is_switched:
        found.nodes["nvswitch"] = {"kind": "switch"}
        rates = {gpu: max(row) for gpu, row in counts.items() if any(row)}
        found.notes += [f"NV{count} to all is one NVSwitch" for count in sorted(set(rates.values()))]
        for gpu, count in rates.items():
            found.link(gpu, "nvswitch", f"NV{count}", bandwidth=f"{NVLINK_GBPS * count} Gbps")
    if any(over_pcie.values()):
        found.nodes["pcie"] = {"kind": "switch"}
        found.notes.append(f"{', '.join(_PCIE)} are one PCIe switch")
        for gpu in [gpu for gpu in gpus if over_pcie[gpu]]:
            found.link(gpu, "pcie", _NO_RATE)
    if len(names) > len(gpus):
        found.warnings.append(f"left out: {', '.join(name for name in names if name not in gpus)}; affinities")
    return found


def _nvlinks(way: str) -> int:
    """Return the number of NVLinks that the word *way* of the table means, 0 for another way."""
    return int(way[2:]) if re.fullmatch(r"NV\d\d?", way, re.ASCII) else 0


def read_slurm(text: str, file: str) -> ForeignCluster:
    """Return the tree of Slurm's topology.conf."""
    rows: list[_Row] = []
    for number, line in enumerate(text.replace("\\\n", " ").split("\n"), 1):
        plain = line.partition("#")[0].strip()
        keys = {key.lower(): value for key, value in re.findall(r"\b(\w+)\s*=\s*([^\s=]+)", plain)}
        if plain and "switchname" not in keys:
            raise UsageError("line", repr(plain[:60]), "SwitchName=NAME Nodes=... or Switches=...", file, number)
        if plain:
            rows.append((number, keys["switchname"], keys.get("nodes"), keys.get("switches")))
    found = _tree(rows, file)
    if "linkspeed" in text.lower():
        found.warnings.append("ignored on switches: LinkSpeed, which has no unit in Slurm")
    return found


def read_slurm_yaml(text: str, file: str) -> ForeignCluster:
    """Return the tree of Slurm's topology.yaml; its first topology counts."""
    data = loads(text, file).data
    first = data[0] if isinstance(data, list) and data else data
    tree = first.get("tree") if isinstance(first, dict) else None
    given = tree.get("switches") if isinstance(tree, dict) else None
    if not isinstance(given, list) or not all(isinstance(one, dict) and one.get("switch") for one in given):
        expected = "a list of topologies, the first with tree: {switches: [{switch: NAME, nodes: ...}]}"
        raise UsageError("topology", "another form", expected, file)
    rows: list[_Row] = [(None, str(one["switch"]), one.get("nodes"), one.get("children")) for one in given]
    found = _tree(rows, file)
    if isinstance(data, list) and len(data) > 1:
        found.warnings.append(f"left out: {len(data) - 1} more topologies of the file")
    return found


def _tree(rows: list[_Row], file: str) -> ForeignCluster:
    """Return a tree of switches and workers."""
    found = ForeignCluster(notes=["workers are the leaves of the tree"])
    seen: set[str] = set()
    switches = dict.fromkeys(node_name(row[1]) for row in rows)
    for line, switch, nodes, below in rows:
        for text, is_switch in ((nodes, False), (below, True)):
            for one in (name for part in _split(str(text or "")) for name in expand(part, file, line)):
                child = node_name(one)
                if child in seen or is_switch != (child in switches):
                    what = "a second time" if child in seen else f"which is {'no' if is_switch else 'a'} switch"
                    raise UsageError(switch, f"{one!r}, {what}", "each node and switch below one switch", file, line)
                seen.add(child)
                found.nodes |= {} if is_switch else {child: {}}
                found.link(child, node_name(switch), _NO_RATE)
    found.nodes |= {name: {"kind": "switch"} for name in switches}
    return found


def _split(text: str) -> list[str]:
    """Split *text* at commas outside brackets."""
    parts = [""]
    for part in text.replace(" ", "").split(","):
        is_open = parts[-1].rfind("[") > parts[-1].rfind("]")
        parts[-1:] = [f"{parts[-1]},{part}"] if is_open else [parts[-1], part]
        if len(parts[-1]) > MOST_RANGE:
            raise UsageError("Nodes", f"{parts[-1][:60]!r}...", f"at most {MOST_RANGE} characters in a range", None)
    return [part for part in parts if part]


def read_containerlab(text: str, file: str) -> ForeignCluster:
    """Return the nodes and links of a containerlab file; its links are without rates."""
    data = loads(text, file).data
    topology = data.get("topology") if isinstance(data, dict) else None
    nodes = topology.get("nodes") if isinstance(topology, dict) else None
    links = topology.get("links") or [] if isinstance(topology, dict) else []
    links = links if isinstance(links, list) else [None]
    pairs = []
    for link in links:
        ends = link.get("endpoints") if isinstance(link, dict) else None
        ends = [end.get("node") if isinstance(end, dict) else end for end in ends] if isinstance(ends, list) else None
        if ends and len(ends) == 2 and all(isinstance(end, str) for end in ends):
            pairs.append([node_name(end.partition(":")[0]) for end in ends])
    if not isinstance(nodes, dict) or len(pairs) != len(links):
        raise UsageError("topology", "another form", "nodes, and links with endpoints: [a:eth1, b:eth1]", file)
    raise_all(twice(nodes, file))
    found = of_graph(
        {"name": data.get("name")},
        [(node_name(name), _bridge(node)) for name, node in nodes.items()],
        [(pair, {}) for pair in pairs],
        add_up=True,
    )
    found.warnings.append("ignored: kinds of nodes other than bridges, images, interfaces of links")
    return found


def _bridge(node: Any) -> dict[str, Any]:
    """Return the keys of the *node* of containerlab: a bridge is a switch."""
    kind = node.get("kind") if isinstance(node, dict) else None
    return {"kind": "switch"} if kind in ("bridge", "ovs-bridge") else {}
