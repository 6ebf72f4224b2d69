"""Files of other tools as topologies: what was read as what, what was ignored, and what is refused in a sentence."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

import pytest

from simcluster.errors import UsageError
from simcluster.topology import Topology, load

PI = {"device": "raspberry-pi-5", "bandwidth": "1 Gbps", "latency": "1 ms"}


def made(folder: Path, name: str, text: str, **defaults: Any) -> Topology:
    path = folder / name
    path.write_text(text)
    return load(path, **(defaults or PI))


def refused(folder: Path, name: str, text: str) -> str:
    with pytest.raises(UsageError) as error:
        made(folder, name, text)
    return str(error.value).replace(f"{folder}/", "")


def links(topology: Topology) -> list[tuple[str, str, str]]:
    return [(link.name, *link.numbers[:2]) for link in topology.links]


GML = """\
graph [
  label "Net"
  node [ id 0 label "St. Louis" Latitude 38.6 ]
  node [ id 1 label "None" ]
  node [ id 2 label "None" ]
  node [ id 3 graphics [ x 1 y 2 ] ]
  edge [ source 0 target 1 LinkSpeedRaw 10000000000.0 ]
  edge [ source 1 target 2 LinkSpeedRaw 622000000.0 ]
  edge [ source 2 target 1 LinkSpeedRaw 155000000.0 LinkLabel "155 Mbps" ]
  edge [ source 2 target 3 bw 100 delay "5 ms" ]
  edge [ source 3 target 3 ]
]
"""


def test_gml_is_read_as_published(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    net = made(tmp_path, "net.gml", GML)
    # The labels None are two, and the last node has none. Parallel edges: 622 + 155 = 777 Mbps.
    assert links(net) == [
        ("St__Louis-None_1", "10 Gbps", "1 ms"),
        ("None_1-None_2", "777 Mbps", "1 ms"),
        ("None_2-3", "1 Gbps", "5 ms"),
    ]
    assert net.description == (
        "Read from net.gml, which is GML: names are labels, with the id where several have one; "
        "bandwidth is LinkSpeedRaw on 3 edges; latency is delay on 1 edge; "
        "edges between the same nodes are one link, their bandwidths added (1 pair of nodes)."
    )
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        "net.gml: names of nodes have letters, digits, _ and -: 'St. Louis' is St__Louis",
        "net.gml: ignored on 1 node: Latitude, graphics; on 1 edge: LinkLabel, bw (no unit)",
        "net.gml: left out: 1 edge from a node to itself",
    ]


@pytest.mark.parametrize(
    ("attribute", "bandwidth", "latency"),
    [
        ("bandwidth_GBps 25", "200 Gbps", "1 ms"),  # bytes
        ("bandwidth_gbps 25", "25 Gbps", "1 ms"),
        ("capacity_MBps 1", "8 Mbps", "1 ms"),
        ("bandwidth_Mbps 5 latency_us 7", "5 Mbps", "7 us"),
        ('latency_ms 5 type "Fibre"', "1 Gbps", "5 ms"),
        ('latency_ms "5" LinkSpeedRaw "2000000000.0"', "2 Gbps", "5 ms"),  # GraphML often has text
        ('latency_ms "unknown" bw "5"', "1 Gbps", "1 ms"),
    ],
)
def test_the_unit_of_an_attribute_counts_by_its_case(
    attribute: str, bandwidth: str, latency: str, tmp_path: Path
) -> None:
    text = f'graph [ node [ id 0 ] node [ id 1 kind "router" ] edge [ source 0 target 1 {attribute} ] ]'
    assert links(made(tmp_path, "net.gml", text)) == [("0-1", bandwidth, latency)]


@pytest.mark.parametrize(
    ("attribute", "value", "found"),
    [
        ("bandwidth_Gbps", -3, "'-3 Gbps', which is negative"),
        ("bandwidth_Gbps", 0, "'0 Gbps', which is zero"),
        ("LinkSpeedRaw", math.nan, "'nan bps'"),
        ("LinkSpeedRaw", 10**400, "'inf bps'"),
        ("latency_ms", "-1", "'-1 ms', which is negative"),
        ("delay", "-5 ms", "'-5 ms', which is negative"),
    ],
)
def test_a_number_that_no_link_can_have_is_refused(attribute: str, value: Any, found: str, tmp_path: Path) -> None:
    ends = (("a", "b"), ("b", "c"), ("c", "a"))
    edges = [{"source": a, "target": b, attribute: value} for a, b in ends]
    text = json.dumps({"nodes": [{"id": name} for name in "abc"], "edges": edges})
    assert refused(tmp_path, "net.json", text).startswith(
        f"net.json: edges[0].{attribute}: found {found}, and 2 more like it, expected a "
    )


def test_only_rates_that_are_there_add_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    edges = ["0 target 1", "0 target 1", "1 target 2", "1 target 2 bw_Gbps 2", "1 target 2 bw_Gbps 3"]
    nodes = "".join(f"node [ id {number} ]" for number in range(3))
    net = made(tmp_path, "net.gml", f"graph [ {nodes} {''.join(f'edge [ source {edge} ]' for edge in edges)} ]")
    assert links(net) == [("0-1", "1 Gbps", "1 ms"), ("1-2", "5 Gbps", "1 ms")]
    linked = [{"source": "a", "target": "b", "bandwidth_Gbps": rate} for rate in (2, 3)]
    both = json.dumps({"multigraph": True, "nodes": [{"id": "a"}, {"id": "b"}], "edges": linked})
    assert links(made(tmp_path, "net.json", both)) == [("a-b", "5 Gbps", "1 ms")]
    assert "their bandwidths added (1 pair of nodes)" in net.description
    assert "left out: 2 edges without a bandwidth where others join the same nodes" in caplog.text


def test_what_is_missing_is_one_sentence_with_the_options(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        made(tmp_path, "net.gml", GML, device="raspberry-pi-5")
    assert str(error.value) == (
        f"{tmp_path}/net.gml: graph: found 1 edge without a bandwidth, 2 edges without a latency, expected bandwidth "
        "'1 Gbps' latency '1 ms', for all that lack them (in Python: arguments of load); "
        "`simcluster calibrate` measures them"
    )


def test_a_graph_in_pieces_is_one_line(tmp_path: Path) -> None:
    nodes = "".join(f"node [ id {number} ]" for number in range(30))
    found = refused(tmp_path, "net.gml", f"graph [ {nodes} edge [ source 7 target 9 ] ]")
    assert found == (
        "net.gml: nodes: found no route from 0, 1, 2 and 25 more to all of 7, 9, "
        "expected links that connect all workers, through switches and gateways if need be"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("graph [ node [ id 0 ]", "net.gml:1: GML: found the end of the file, expected a ] for each ["),
        ("graph [\n ] ]", "net.gml:2: GML: found ']', expected a key and its value"),
        ("graph [ node [ ] ]", "node[0]: found no id, expected one id"),
        ('graph [ node [ id 1 ] node [ id "1" ] ]', "node[1]: found the id 1 again, expected one id"),
        ("graph [ node [ id 1 ] node [ id 1.0 ] ]", "node[1]: found the id 1.0 again, expected one id"),
        ("graph [ node [ id [ a 1 ] ] ]", "node[0]: found a block as id, expected one id"),
        ("graph [ node [ id 0 ] edge [ source 0 target [ ] ] ]", "edge[0]: found a block as an end"),
        (
            "graph [ node [ id 0 ] node [ id 1 ] " + "edge [ source 0 target 1 bandwidth 9 ] " * 2 + "]",
            "links[0].bandwidth: found 9 without a unit, and 1 more like it, expected a bandwidth",
        ),
        ("graph [ node [ id 0 ] edge [ source 0 target 4 ] ]", "edge[0]: found the end 4, expected the id of a node"),
        ("graph [ directed 1 ]", "found a directed graph"),
        ("a " + "[ b " * 100, "net.gml:1: GML: found"),
        ("a 1\n" * 2_100_000, "found 8,400,000 characters, expected at most 8,000,000"),
    ],
)
def test_wrong_gml_is_refused_with_its_place(text: str, expected: str, tmp_path: Path) -> None:
    assert expected in refused(tmp_path, "net.gml", text)


def test_a_host_list_is_a_star_with_addresses(tmp_path: Path) -> None:
    hosts = made(tmp_path, "hostfile", "# shelf\nnode[01-02].local slots=2 max_slots=4\npi@10.0.0.7\n")
    # slots=2 are two processes, each a rank
    assert hosts.workers == ["node01_local_0", "node01_local_1", "node02_local_0", "node02_local_1", "10_0_0_7"]
    assert hosts.nodes["node02_local_1"].address == "node02.local"
    assert (hosts.nodes["10_0_0_7"].address, hosts.nodes["10_0_0_7"].ssh) == ("10.0.0.7", "pi@10.0.0.7")
    ansible = "[pis]\npi[1:2] ansible_user=me\n[macs]\nmini ansible_host=10.0.0.9 ansible_port=2222\n[macs:vars]\nx=1\n"
    shelf = made(tmp_path, "inventory.ini", ansible)
    assert {name: (node.address, node.ssh) for name, node in shelf.nodes.items()} == {
        "pi1": ("pi1", "me@pi1"),
        "pi2": ("pi2", "me@pi2"),
        "mini": ("10.0.0.9", None),
        "network": (None, None),
    }
    mlx = made(tmp_path, "hosts.json", '[{"ssh": "m1", "ips": ["10.0.0.1", "10.0.1.1"]}, {"ssh": "m2", "ips": []}]')
    assert [node.address for node in mlx.nodes.values()] == ["10.0.0.1", "m2", None]
    assert links(mlx) == [("m1-network", "1 Gbps", "1 ms"), ("m2-network", "1 Gbps", "1 ms")]
    assert "more than 100,000 names" in refused(tmp_path, "hostfile", "n[1-999999999] slots=1\n")
    assert "hostfile:2: host: found 'a' a second time" in refused(tmp_path, "hostfile", "a slots=1\na slots=2\n")


def test_what_an_inventory_says_of_a_host_stays_at_a_later_mention(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # The second mention of mini has a user, who logs in at the address of the first one.
    secret = """ansible_password='my secret; x#y'"""
    text = f"mini ansible_host=10.0.0.9 {secret}\npi\n\n[macs]\nmini ansible_user=me # old\n[pis]\npi ansible_host=p1\n"
    shelf = made(tmp_path, "inventory", text)
    assert [(node.address, node.ssh) for node in shelf.nodes.values()][:2] == [
        ("10.0.0.9", "me@10.0.0.9"),
        ("p1", None),
    ]
    assert "secret" not in caplog.text
    assert "inventory:1: host: found a quote without its end" in refused(tmp_path, "inventory", "a ansible_user='b\n")


def test_ranges_of_an_inventory_are_of_numbers_or_letters(tmp_path: Path) -> None:
    shelf = made(tmp_path, "inventory.ini", "[shelf]\nn-[a:c] ansible_user=u\nm[09:10]\n")
    assert shelf.workers == ["n-a", "n-b", "n-c", "m09", "m10"]
    assert "found 'a:C', expected numbers" in refused(tmp_path, "inventory.ini", "[shelf]\nn[a:C]\n")
    first_example = "mail.example.com\n\n[webservers]\nfoo.example.com\nbar.example.com\n"
    assert len(made(tmp_path, "hosts", first_example).workers) == 3


@pytest.mark.parametrize(
    ("file", "text", "part"),
    [
        ("hosts", "n9 slots=1\nnode[5-3] slots=1\n", "5-3"),
        ("topology.conf", "SwitchName=s Nodes=n[5-3],n9\n", "5-3"),
        ("inventory.ini", "[pis]\np[5:3]\nq\n", "5:3"),
        ("inventory.ini", "[pis]\np[c:a]\nq\n", "c:a"),
        ("p.xml", '<platform><cluster id="c" radical="0-3,9-5" speed="1f" bw="1Bps"/></platform>', "9-5"),
    ],
)
def test_a_range_that_runs_backward_drops_no_host_in_silence(file: str, text: str, part: str, tmp_path: Path) -> None:
    assert f"found the backward range '{part}', expected its lower end first" in refused(tmp_path, file, text)


def test_a_number_after_a_colon_is_processes_or_a_port(tmp_path: Path) -> None:
    assert made(tmp_path, "hosts", "a:2\nb:29500\n").workers == ["a_0", "a_1", "b"]
    assert "[0]: found another entry" in refused(tmp_path, "hosts.json", '[{"ssh": "a", "ips": [null]}]')


@pytest.mark.parametrize(
    ("file", "text", "address", "ssh"),
    [
        ("hostfile", "2001:db8::1 slots=2\n", "2001:db8::1", None),
        ("hostfile", "pi@[fe80::1%eth0]:2\n", "fe80::1%eth0", "pi@fe80::1%eth0"),
        ("hostfile", "[::1]\n", "::1", None),
        ("inventory.ini", "[pis]\np ansible_host=2001:db8::1 ansible_user=pi\n", "2001:db8::1", "pi@2001:db8::1"),
        ("inventory.ini", "[pis]\n[2001:db8::1]:22\n", "2001:db8::1", None),
        ("hosts.json", '[{"ssh": "2001:db8::7"}]', "2001:db8::7", "2001:db8::7"),
    ],
)
def test_hosts_may_have_ipv6_addresses(file: str, text: str, address: str, ssh: str | None, tmp_path: Path) -> None:
    hosts = made(tmp_path, file, text)
    assert {(hosts.nodes[name].address, hosts.nodes[name].ssh) for name in hosts.workers} == {(address, ssh)}
    assert len(hosts.workers) == (2 if "2\n" in text and file == "hostfile" else 1)  # processes, and no ports


NVIDIA = """\
\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity
GPU0\t X \tNV4\tSYS\tPIX\t0-15
GPU1\tNV4\t X \tPHB\tSYS\t0-15
GPU2\tSYS\tPHB\t X \tSYS\t16-31
NIC0\tPIX\tSYS\tSYS\t X

Legend:
  X    = Self
"""


def test_gpus_are_joined_by_their_nvlinks_and_by_pcie(tmp_path: Path) -> None:
    box = made(tmp_path, "topo.txt", NVIDIA)
    # 4 NVLinks of 25 GB/s = 800 Gb/s; a way to GPU2 crosses PCIe, and no other GPU.
    assert links(box)[0] == ("GPU0-GPU1", "800 Gbps", "1 ms")
    assert [hop.target for hop in box.route("GPU0", "GPU2")] == ["pcie", "GPU2"]
    assert len(box.route("GPU0", "GPU1")) == 1
    assert "topo.txt:3: GPU1-GPU2: found '??'" in refused(tmp_path, "topo.txt", NVIDIA.replace("PHB", "??"))


def test_gpus_with_more_links_than_they_have_share_an_nvswitch(tmp_path: Path) -> None:
    names = [f"GPU{number}" for number in range(8)]
    rows = [[name, *("X" if other == name else "NV12" for other in names)] for name in names]
    table = "\n".join("\t".join(row) for row in [["", *names], *rows])
    box = made(tmp_path, "topo.txt", table)
    # 12 NVLinks of 25 GB/s to the switch: 2.4 Tb/s in all, and no second path between two GPUs.
    assert links(box) == [(f"{name}-nvswitch", "2.4 Tbps", "1 ms") for name in names]
    assert "NV12 to all is one NVSwitch" in box.description
    few = "\n".join("\t".join(row[:4]) for row in [["", *names], *rows[:3]]).replace("NV12", "NV2")
    assert [name for name, _, _ in links(made(tmp_path, "topo.txt", few))] == ["GPU0-GPU1", "GPU0-GPU2", "GPU1-GPU2"]


CONF = (
    "SwitchName=leaf1 Nodes=node[01-02]\nSwitchName=leaf2 Nodes=x,y\nSwitchName=spine Switches=leaf[1-2] LinkSpeed=9\n"
)
YAML = """\
- topology: default
  tree:
    switches:
      - {switch: leaf1, nodes: "node[01-02]"}
      - {switch: leaf2, nodes: "x,y"}
      - switch: spine
        children: leaf[1-2]
"""


def test_both_files_of_slurm_are_one_tree(tmp_path: Path) -> None:
    tree = made(tmp_path, "topology.conf", CONF)
    assert tree.workers == ["node01", "node02", "x", "y"]
    assert [hop.target for hop in tree.route("node01", "y")] == ["leaf1", "spine", "leaf2", "y"]
    assert made(tmp_path, "topology.yaml", YAML).links == tree.links
    twice = CONF.replace("x,y", "x,node01")
    assert "topology.conf:2: leaf2: found 'node01', a second time" in refused(tmp_path, "topology.conf", twice)
    assert "which is no switch" in refused(tmp_path, "topology.conf", CONF.replace("leaf[1-2]", "leaf[1-3]"))


SND = """\
?SNDlib native format; type: network
NODES (
 Kiel ( 10 54 )
 Bonn ( 7 50 )
)
LINKS (
 L ( Kiel Bonn ) 40 0 ( 1 2 )
)
"""
SND_XML = """<?xml version="1.0"?><network xmlns="http://sndlib.zib.de/network"><networkStructure><nodes>
<node id="Kiel"/><node id="Bonn"/></nodes><links><link id="L"><source>Kiel</source><target>Bonn</target></link></links>
</networkStructure></network>"""
LAB = 'name: lab\ntopology:\n  nodes: {a: {kind: linux}, b: }\n  links:\n    - endpoints: ["a:eth1", "b:eth1"]\n'


def test_sndlib_and_containerlab_give_nodes_and_links(tmp_path: Path) -> None:
    assert links(made(tmp_path, "n.txt", SND)) == [("Kiel-Bonn", "1 Gbps", "1 ms")]
    assert links(made(tmp_path, "n.xml", SND_XML)) == [("Kiel-Bonn", "1 Gbps", "1 ms")]
    assert links(made(tmp_path, "lab.clab.yml", LAB)) == [("a-b", "1 Gbps", "1 ms")]
    ends = "endpoints: [{node: a, interface: eth1}, {node: b, interface: eth1}]"
    bridged = LAB.replace('endpoints: ["a:eth1", "b:eth1"]', ends).replace("b: }", "b: {kind: ovs-bridge}}")
    assert links(lab := made(tmp_path, "lab.clab.yml", bridged)) == [("a-b", "1 Gbps", "1 ms")]
    assert lab.workers == ["a"]
    assert "XML, which is not read" in refused(tmp_path, "n.xml", "<network><name>default</name></network>")
    assert "n.txt:7: LINKS: found another line" in refused(tmp_path, "n.txt", SND.replace("L (", "L"))
    assert "LINKS[0]: found the end 'Ulm'" in refused(tmp_path, "n.txt", SND.replace("Kiel Bonn", "Kiel Ulm"))


PLATFORM = """<?xml version='1.0'?><platform version="4.1"><zone id="z" routing="Full">
<host id="a" speed="60Gf" core="4"/><host id="b" speed="1Gf"/><link id="l" bandwidth="125MBps" latency="50us"/>
<route src="a" dst="b"><link_ctn id="l"/></route></zone></platform>"""


def test_a_platform_of_simgrid_has_its_speeds_and_its_model(tmp_path: Path) -> None:
    platform = made(tmp_path, "p.xml", PLATFORM)
    assert platform.device("a").flops_per_s == 240e9  # 4 x 60
    assert (platform.network, platform.links[0].duplex, platform.links[0].ack_share) == ("lv08", "half", 0.05)
    assert "network lv08 is SimGrid's default model, LV08" in platform.description


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("125MBps", "125", ""),  # SimGrid reads bytes per second
        ("125MBps", "125MB", "link l: found bandwidth '125MB', expected one with its unit, as in 125MBps"),
        ("50us", "1e999us", "link l: found latency '1e999us'"),
        ('id="l"/>', 'id="m"/>', "unknown link 'm'; expected one of l"),
        ('dst="b"', 'dst="c"', "unknown end 'c'"),
        ('<route src="a" dst="b"><link_ctn id="l"/></route>', "", "zone z: found no route from 'a' to 'b'"),
        ('"Full"', '"Vivaldi"', "found the routing 'Vivaldi'"),
        ("<host id", "<peer id", "found an element that is not read"),
        ("<platform", '<!DOCTYPE x [<!ENTITY e "ee">]><platform', "is not read"),
        ('src="a" dst="b"', 'src="a" dst="b" symmetrical="NO"', "no route from 'b' to 'a'"),
    ],
)
def test_a_wrong_platform_is_refused_with_its_element(old: str, new: str, expected: str, tmp_path: Path) -> None:
    text = PLATFORM.replace(old, new)
    if expected:
        assert expected in refused(tmp_path, "p.xml", text)
    else:
        assert made(tmp_path, "p.xml", text).links[0].bandwidth_Bps == 125


def test_gates_that_lead_in_a_circle_and_bombs_are_refused(tmp_path: Path) -> None:
    gates = '<zoneRoute src="u" dst="v" gw_src="b" gw_dst="a"><link_ctn id="l"/></zoneRoute>'
    zones = "".join(f'<zone id="{z}" routing="None"><host id="{h}" speed="1f"/></zone>' for z, h in ("ua", "vb"))
    body = f'<zone id="w" routing="Full">{zones}<link id="l" bandwidth="1MBps"/>{gates}</zone>'
    assert "without an end" in refused(tmp_path, "p.xml", f"<platform>{body}</platform>")
    bomb = '<?xml version="1.0"?><!DOCTYPE graphml [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><graphml>&b;</graphml>'
    assert "found an entity" in refused(tmp_path, "a.graphml", bomb)
    assert "found 900,001 tags" in refused(tmp_path, "a.graphml", "<a>" * 900_001)
    huge = '<cluster id="c" radical="0-999999999" speed="1f" bw="1Bps"/>'
    assert "more than 100,000 hosts" in refused(tmp_path, "p.xml", f"<platform>{huge}</platform>")


def test_a_large_cluster_is_one_star(tmp_path: Path) -> None:
    cluster = '<cluster id="c" prefix="n" radical="0-299" speed="1Gf" bw="1MBps" lat="1us"/>'
    star = made(tmp_path, "p.xml", f"<platform>{cluster}</platform>")
    assert (len(star.workers), len(star.links)) == (300, 300)
    clash = '<cluster id="c" prefix="switch" radical="0-1" suffix="" speed="1Gf" bw="1MBps"/>'
    assert "switch0-switch" in made(tmp_path, "p.xml", f"<platform>{clash}</platform>").links[0].name
    one = '<zone id="z" routing="Cluster"><host id="switch" speed="1f"/><link id="l" bandwidth="1Bps"/>'
    one += '<host_link id="switch" up="l" down="l"/></zone>'
    assert "found a host called switch" in refused(tmp_path, "p.xml", f"<platform>{one}</platform>")


def test_text_of_a_file_does_not_reach_the_terminal_as_commands(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    evil = 'graph [ label "\x1b[2J" node [ id 0 label "a\x1b[31m\nb" x\x07 1 ] ]'.replace("x\x07", "x")
    net = made(tmp_path, "net.gml", evil)
    assert list(net.nodes) == ["a__31m_b"]
    assert "\x1b" not in net.name + net.description + "".join(record.getMessage() for record in caplog.records)
