"""What a topology says of its network is read exactly, with all errors at once; it travels in the document."""

from __future__ import annotations

import re
from math import inf
from pathlib import Path

import networkx
import pytest

from simcluster.documents.shipped import shipped_names
from simcluster.errors import UsageError
from simcluster.topology import describe, load, loads
from simcluster.topology.model.conditions import Background, BackgroundFlow, Jitter, RateTrace
from simcluster.topology.read.links import LINK_KEYS
from simcluster.topology.read.network import NETWORK_KEYS
from tests.support.root import ROOT

FULL = """\
name: full
network: lv08
routing: ecmp
inbox: 1 MiB
routes: [[a, sw, b]]
background:
  - {from: a, to: h, rate: 3 Mbps, on: 1 s, off: 2 s}
  - {from: b, to: a, rate: 1 MB/s}
nodes:
  a: {flops: 1 GFLOP/s, send_overhead: 20 us, recv_overhead: 30 us, host_bandwidth: 1 GB/s}
  b: {flops: 1 GFLOP/s}
  h: {kind: host}
  sw: {kind: switch}
links:
  - {between: [a, sw], bandwidth: 1 MB/s, latency: 1 us, loss: 0.01, jitter: {kind: lognormal, mean: 1 ms, sigma: 0.5}}
  - {between: [b, sw], bandwidth: 1 MB/s, latency: 1 us, jitter: 2 ms,
     trace: {steps: {0 s: 1, 5 s: 0, 6 s: 30 kB/s}, period: 8 s}}
  - {between: [h, sw], bandwidth: 1 MB/s, latency: 1 us, medium: air, background: {rate: 8 kbps, on: 3 s, off: 1 ms}}
"""

WRONG = """\
network: lv8
routing: fast
inbox: 64
routes: [[a, sw, c], [b, sw, a], [a, sw, b], [a], [a, b], 3, [a, sw]]
background:
  - {from: a, to: sw, rate: 3}
  - {from: a, to: a, rate: 3 Mbps, on: 1 s}
  - 7
nodes:
  a: {flops: 1 GFLOP/s, send_overhead: 20, host_bandwidth: fast}
  b: {flops: 1 GFLOP/s}
  sw: {kind: switch}
links:
  - {between: [a, sw], bandwidth: 1 Gbps, latency: 1 us}
  - {between: [sw, b], bandwidth: 1 Gbps, latency: 1 us}
"""


def problems_of(text: str) -> list[str]:
    with pytest.raises(UsageError) as error:
        loads(text, "t.yaml")
    return [str(problem) for problem in error.value.problems]


def of_link(keys: str) -> list[str]:
    """What is wrong with a link of these keys beside its numbers."""
    return problems_of(
        "nodes: {a: {flops: 1 GFLOP/s}, b: {flops: 1 GFLOP/s}}\n"
        f"links: [{{between: [a, b], bandwidth: 1 MB/s, latency: 0 s, {keys}}}]"
    )


def test_everything_is_read_exactly() -> None:
    full = loads(FULL)
    assert (full.network, full.routing, full.inbox_bytes, full.paths) == ("lv08", "ecmp", 2**20, (("a", "sw", "b"),))
    assert full.background == (
        BackgroundFlow("a", "h", Background(375e3, 1.0, 2.0)),
        BackgroundFlow("b", "a", Background(1e6)),
    )
    a, b = full.nodes["a"], full.nodes["b"]
    assert (a.send_overhead_s, a.recv_overhead_s, a.host_bandwidth_Bps) == (20e-6, 30e-6, 1e9)
    assert (b.send_overhead_s, b.recv_overhead_s, b.host_bandwidth_Bps) == (0.0, 0.0, inf)
    of_a, of_b, of_h = full.links
    assert (of_a.loss, of_a.jitter) == (0.01, Jitter(1e-3, "lognormal", 0.5))
    assert of_b.jitter == Jitter(2e-3)
    assert of_b.trace == RateTrace(((0.0, 1e6), (5.0, 0.0), (6.0, 30e3)), 8.0)
    assert (of_h.medium, of_h.duplex, of_h.background) == ("air", "half", Background(1e3, 3.0, 1e-3))


def test_the_example_of_the_documentation_is_read() -> None:
    text = (ROOT / "docs" / "network.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    home = loads(example)
    assert [link.medium for link in home.links] == [None, None, "wifi", "wifi"]
    of_nodes = ("send_overhead", "recv_overhead", "host_bandwidth", "machine", "threads", "send_buffer")
    keys = set(re.findall(r"^\| `(\w+)`", text, flags=re.MULTILINE)) | {"recv_overhead"}
    assert keys == {*NETWORK_KEYS, *LINK_KEYS, *of_nodes} - {"between", "type", "bandwidth", "latency"}


def test_a_file_that_says_nothing_of_it_has_none_of_it() -> None:
    plain = loads("nodes: {a: {flops: 1 GFLOP/s}, b: {flops: 1 GFLOP/s}}\nlinks: [{between: [a, b], type: wan}]")
    assert (plain.network, plain.routing, plain.inbox_bytes) == ("maxmin", "shortest", None)
    assert plain.paths == plain.background == ()
    assert plain.links[0].conditions == []


@pytest.mark.parametrize("name", shipped_names("topologies"))
def test_no_shipped_cluster_has_any_of_it_by_itself(name: str) -> None:
    topology = load(name)
    assert not any(link.conditions for link in topology.links)
    assert {node.send_overhead_s + node.recv_overhead_s for node in topology.nodes.values()} == {0.0}


def test_the_document_reads_back_to_the_same() -> None:
    full = loads(FULL)
    assert loads(full.document) == full
    assert loads(FULL.replace("lv08", "maxmin")) != full
    assert loads(FULL.replace("[[a, sw, b]]", "[]")) != full


def test_a_description_tells_all_of_it() -> None:
    text = describe(loads(FULL))
    for words in (
        "network: modelled as lv08",
        "routing: ecmp",
        "routes: a > sw > b",
        "inboxes: a node accepts 1.049 MB per peer before its recv",
        "background from a to h: 3 Mbps, on for 1 s and off for 2 s on average",
        "20 us per message to send, 30 us per message to receive, 8 Gbps in and out combined",
        "0.01 of packets lost, lognormal jitter (mean 1 ms, sigma 0.5)",
        "exponential jitter (mean 2 ms), 0 bps to 8 Mbps in 3 steps, again every 8 s",
        "on the medium air, background 8 kbps, on for 3 s and off for 1 ms on average",
    ):
        assert words in text
    assert "accepts nothing before its recv" in describe(loads(FULL.replace("1 MiB", "0 B")))


def test_all_that_is_wrong_is_told_at_once_with_its_line() -> None:
    found = problems_of(WRONG)
    expected = [
        ("t.yaml:1:10: network: found 'lv8'", "did you mean 'lv08'?"),
        ("t.yaml:2:10: routing: found 'fast'", "one of ecmp, shortest"),
        ("t.yaml:3:8: inbox: found 64 without a unit", "a size with its unit"),
        ("t.yaml:4:10: routes[0]: unknown node 'c'", "expected one of a, b, "),
        ("t.yaml:4:34: routes[2]: found a second route between them", "it goes both ways"),
        ("t.yaml:4:46: routes[3]: found a list of 1", "at least two"),
        ("t.yaml:4:51: routes[4]: found no link between a and b", "nodes that links join"),
        ("t.yaml:4:59: routes[5]: found 3", "names of nodes from end to end"),
        ("t.yaml:4:62: routes[6]: found the switch sw at an end", "workers or hosts at both ends"),
        ("t.yaml:6:19: background[0].to: found 'sw'", "a worker or host of this file"),
        ("t.yaml:6:29: background[0].rate: found 3 without a unit", "a bandwidth with its unit"),
        ("t.yaml:7:5: background[1].off: found nothing", "as there is on"),
        ("t.yaml:7:19: background[1].to: found 'a'", "another node than a"),
        ("t.yaml:8:5: background[2]: found 7", "a mapping with from, to, rate, on, off"),
        ("t.yaml:10:40: nodes.a.send_overhead: found 20 without a unit", "a time with its unit"),
        ("t.yaml:10:60: nodes.a.host_bandwidth: found 'fast'", "a bandwidth with its unit"),
    ]
    assert len(found) == len(expected), found
    for problem, (start, rest) in zip(found, expected, strict=True):
        assert problem.startswith(start), (problem, start)
        assert rest in problem


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ("jitter: 5", "links[0].jitter: found 5 without a unit"),
        ("jitter: 0 s", "links[0].jitter: found '0 s', which is zero"),
        ("jitter: {kind: gaussian, mean: 1 s}", "links[0].jitter.kind: found 'gaussian'"),
        ("jitter: {kind: uniform}", "links[0].jitter.mean: found nothing"),
        ("jitter: {kind: lognormal, mean: 1 s}", "links[0].jitter.sigma: found nothing with kind lognormal"),
        ("jitter: {mean: 1 s, sigma: 1}", "links[0].jitter.sigma: found it with kind exponential, expected none"),
        ("jitter: {mean: 1 s, scale: 1}", "links[0].jitter.scale: unknown key"),
        ("loss: 0.91", "links[0].loss: found 0.91, expected a share of packets from 0 to 0.9 (each further try"),
        ("loss: 1 %", "links[0].loss: found '1 %'"),
        ("background: 5", "links[0].background: found 5 without a unit"),
        ("background: {on: 1 s, off: 1 s}", "links[0].background.rate: found nothing"),
        ("background: {rate: 1 Mbps, off: 1 s}", "links[0].background.on: found nothing"),
        ("background: {rate: 1 Mbps, on: 1 s, off: 0 s}", "links[0].background.off: found '0 s', which is zero"),
        ("background: 1 Mbps, duplex: free", "links[0].background: found it with duplex free"),
        ("medium: a b", "links[0].medium: found 'a b'"),
        ("medium: air, duplex: full", "links[0].duplex: found 'full', expected half, or none"),
        ("medium: air, trace: {steps: {0 s: 1}}", "links[0].trace: found it with a medium"),
        ("trace: {steps: {0 s: 1}}, duplex: free", "links[0].trace: found it with duplex free"),
        ("trace: {}", "links[0].trace: found neither"),
        ("trace: {steps: {0 s: 1}, file: x.csv}", "links[0].trace: found both"),
        ("trace: {steps: {}}", "links[0].trace.steps: found an empty mapping"),
        ("trace: {steps: {0 s: -1}}", "links[0].trace.steps.0 s: found -1"),
        ("trace: {steps: {0 s: }}", "links[0].trace.steps.0 s: found nothing"),
        ("trace: {steps: {0 s: fast}}", "links[0].trace.steps.0 s: found 'fast'"),
        ("trace: {steps: {1 s: 1}}", "links[0].trace.steps.1 s: found '1 s', expected 0 first"),
        ("trace: {steps: {0 s: 1, 2 s: 0, 1 s: 1}}", "found '1 s', expected a time after 2 s"),
        ("trace: {steps: {0 s: 1, 2 s: 0}, period: 2 s}", "trace.period: found '2 s', expected more than 2 s"),
        ("trace: {file: nowhere.csv}", "nowhere.csv: file: found No such file or directory"),
        ("trace: {file: 3}", "links[0].trace.file: found 3"),
    ],
)
def test_a_wrong_condition_of_a_link_is_one_problem(keys: str, problem: str) -> None:
    found = of_link(keys)
    assert len(found) == 1, found
    assert problem in found[0]


@pytest.mark.parametrize(
    ("csv", "problem"),
    [
        ("time_s,rate\n0,1\n", "expected the line time_s,factor or time_s,bandwidth and rows"),
        ("time_s,bandwidth\n0,5\n", "x.csv:2: trace: found '0,5', expected a bandwidth with its unit"),
        ("time_s,bandwidth\n0,5 Mbps,1\n", "expected two numbers: seconds and a bandwidth"),
        (
            "time_s,factor\n0,1\n\n1,-1\n",
            "x.csv:4: trace: found '1,-1', expected finite numbers, the factor 0 or above",
        ),
        ("time_s,factor\n0,x\n", "expected two numbers: seconds and a factor"),
    ],
)
def test_a_wrong_row_of_a_trace_is_told_with_its_line(csv: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(csv)
    path = tmp_path / "t.yaml"
    path.write_text(FULL.replace("{steps: {0 s: 1, 5 s: 0, 6 s: 30 kB/s}, period: 8 s}", "{file: x.csv}"))
    with pytest.raises(UsageError) as error:
        load(path)
    assert len(error.value.problems) == 1
    assert problem in str(error.value.problems[0])


def test_switches_have_no_overheads_and_nobody_forwards_who_does_not() -> None:
    text = FULL.replace("sw: {kind: switch}", "sw: {kind: switch, send_overhead: 1 us}")
    assert any("nodes.sw.send_overhead: found it on a switch" in problem for problem in problems_of(text))
    closed = (
        "routes: [[a, b, c]]\n"
        "nodes: {a: {flops: 1 GFLOP/s}, b: {flops: 1 GFLOP/s, gateway: false}, c: {flops: 1 GFLOP/s}}\n"
        "links: [{between: [a, b], type: wan}, {between: [b, c], type: wan}, {between: [a, c], type: wan}]"
    )
    assert ["a route through b, which forwards nothing" in problem for problem in problems_of(closed)] == [True]


def test_all_of_it_can_be_set_from_outside() -> None:
    changed = loads(
        FULL,
        overrides={
            "network": "maxmin",
            "inbox": "0 B",
            "routes": "[]",
            "background": "[]",
            "nodes.b.send_overhead": "1 ms",
            "links.a-sw.loss": "0",
            "links.a-sw.jitter.mean": "5 ms",
            "links.sw-b.trace.period": "9 s",
            "links.h-sw.background.rate": "9 kbps",
        },
    )
    assert (changed.network, changed.inbox_bytes, changed.paths, changed.background) == ("maxmin", 0, (), ())
    assert changed.nodes["b"].send_overhead_s == 1e-3
    assert (changed.links[0].loss, changed.links[0].jitter) == (0.0, Jitter(5e-3, "lognormal", 0.5))
    assert changed.links[1].trace is not None
    assert changed.links[1].trace.period_s == 9.0
    assert changed.links[2].background == Background(1125.0, 3.0, 1e-3)
    with pytest.raises(UsageError, match="unknown key 'meen'; did you mean 'mean'"):
        loads(FULL, overrides={"links.a-sw.jitter.meen": "5 ms"})
    with pytest.raises(UsageError, match="unknown key 'netwrk'; did you mean 'network'"):
        loads(FULL, overrides={"netwrk": "lv08"})


def test_a_generated_topology_and_a_graph_may_say_so_too() -> None:
    star = loads("{generator: star, workers: 3, network: lv08, inbox: 2 MB, routing: ecmp}")
    assert (star.network, star.inbox_bytes, star.routing) == ("lv08", 2_000_000, "ecmp")
    graph = networkx.Graph(name="g", network="lv08")
    graph.add_node("a", flops="1 GFLOP/s", send_overhead="1 us")
    graph.add_node("b", flops="1 GFLOP/s")
    graph.add_edge("a", "b", type="wan", **{"jitter.mean": "1 ms", "loss": 0.1})
    made = load(graph)
    assert (made.network, made.links[0].jitter, made.links[0].loss) == ("lv08", Jitter(1e-3), 0.1)
    assert made.nodes["a"].send_overhead_s == 1e-6
