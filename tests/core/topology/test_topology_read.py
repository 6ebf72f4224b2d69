"""A topology file is read exactly; everything wrong with it is said at once, with its place and no echo."""

from __future__ import annotations

import pytest

from simcluster.errors import UsageError
from simcluster.topology import Link, loads
from simcluster.topology.presets.links import LINKS
from tests.core.topology.reading import TWO, one_problem, problems_of

FOUR_FAULTS = """\
name: four
nodes:
  a: {device: mac-mini-m4}
  b: {device: mac-mini-m44}
  c: {device: raspberry-pi-5}
  lone: {device: raspberry-pi-4}
  a: {device: raspberry-pi-4}
links:
  - {between: [a, b], type: thunderbolt-4}
  - {between: [b, c], bandwidth: 1000, latency: 150 us}
"""


def test_four_faults_give_four_errors_with_their_lines() -> None:
    problems = problems_of(FOUR_FAULTS)
    assert [problem.split(": found ")[0] for problem in problems] == [
        "t.yaml:4:15: nodes.b.device",
        "t.yaml:6:3: nodes.lone",
        "t.yaml:7:3: nodes.a",
        "t.yaml:10:34: links[1].bandwidth",
    ]
    assert "found 'mac-mini-m44'; did you mean 'mac-mini-m4'?" in problems[0]
    assert "no route from lone to all of a, b, c" in problems[1]
    assert "a second node called a, expected one (the first is on line 3)" in problems[2]
    assert "1000 without a unit" in problems[3]


def test_each_of_the_four_faults_mended_takes_away_its_error_and_no_other() -> None:
    mended = [
        ("m44", "m4"),
        ("  lone: {device: raspberry-pi-4}\n", ""),
        ("  a: {device: rasp", "  d: {device: rasp"),
    ]
    mended.append(("1000,", "1000 bps,"))
    text = FOUR_FAULTS.replace("  lone", "  d: {kind: switch}\n  lone").replace("  d: {kind: switch}\n", "")
    for count, (wrong, right) in enumerate(mended, start=1):
        text = text.replace(wrong, right)
        if count == 3:
            # Node d is now one of its own, and needs a link.
            text += "  - {between: [c, d], type: wifi-6}\n"
        if count < 4:
            assert len(problems_of(text)) == 4 - count
    assert loads(text).workers == ["a", "b", "c", "d"]


def test_numbers_of_a_link_are_exact_and_a_route_takes_its_textbook_time() -> None:
    link = loads(TWO).links[0]
    assert (link.name, link.bandwidth_Bps, link.latency_s, link.duplex) == ("a-b", 125e6, 150e-6, "full")
    assert 125_000_000 / link.bandwidth_Bps == 1.0


def test_ranks_follow_the_file_and_switches_have_none() -> None:
    topology = loads(
        "nodes: {z: {device: x86-laptop}, s: {kind: switch}, a: {device: x86-laptop}}\n"
        "links: [{between: [z, s], type: wan}, {between: [a, s], type: wan}]"
    )
    assert topology.workers == ["z", "a"]
    assert topology.nodes["s"].device is None
    assert topology.nodes["s"].kind == "switch"


def test_a_link_type_gives_its_numbers_and_the_file_may_override_each() -> None:
    plain = loads(TWO.replace("bandwidth: 1 Gbps, latency: 150 us", "type: wifi-6")).links[0]
    wifi = LINKS["wifi-6"]
    assert (plain.bandwidth_Bps, plain.latency_s, plain.duplex) == (
        wifi.bandwidth_Bps,
        wifi.latency_s,
        "half",
    )
    changed = loads(TWO.replace("bandwidth: 1 Gbps, latency: 150 us", "type: wifi-6, latency: 1 us, duplex: free"))
    assert changed.links == (
        Link(
            "a",
            "b",
            wifi.bandwidth_Bps,
            1e-6,
            "free",
            "wifi-6",
            f"{wifi.source}; latency, duplex given in the topology",
        ),
    )


def test_acknowledgements_take_nothing_unless_a_link_says_so() -> None:
    assert loads(TWO).links[0].ack_share == 0.0
    given = loads(TWO.replace("latency: 150 us", "latency: 150 us, ack_share: 0.022"))
    assert given.links[0].ack_share == 0.022
    with pytest.raises(UsageError, match="ack_share: found 1, expected a number from 0 to below 1"):
        loads(TWO.replace("latency: 150 us", "latency: 150 us, ack_share: 1"))


def test_what_a_real_node_needs_is_carried_along() -> None:
    keys = "address: 10.10.0.1, port: 52300, ssh: me@mini1.local, site: desk, gateway: false"
    node = loads(f"nodes: {{a: {{device: mac-mini-m4, {keys}}}}}").nodes["a"]
    assert (node.address, node.port, node.ssh, node.site) == ("10.10.0.1", 52300, "me@mini1.local", "desk")
    assert node.gateway is False


@pytest.mark.parametrize(
    ("wrong", "right", "words"),
    [
        ("1 Gbps", "1 Gbit/s", "5:34: links[0].bandwidth: found '1 Gbit/s'"),
        ("1 Gbps", "0 bps", "found '0 bps', which is zero"),
        ("150 us", "-1 us", "found '-1 us', which is negative"),
        (
            ", latency: 150 us",
            "",
            "5:5: links[0].latency: found nothing, expected a latency with its unit, or a type",
        ),
        (
            "150 us}",
            "150 us, duplex: both}",
            "found 'both', expected one of free, full, half",
        ),
        ("150 us}", "150 us, type: thunderbolt-6}", "did you mean 'thunderbolt-5'?"),
        (
            "150 us}",
            "150 us, latncy: 1 us}",
            "5:59: links[0].latncy: unknown key; did",
        ),
        ("[a, b]", "[a]", "links[0].between: found a list of 1, expected two names of nodes"),
        ("[a, b]", "[a, bb]", "5:19: links[0].between[1]: unknown node 'bb'"),
        ("mac-mini-m4}", "mac-mini-m4, flops: 5}", "nodes.a.flops: found 5 without a unit"),
        ("mac-mini-m4}", "mac-mini-m4, memory: 0 GB}", "nodes.a.memory: found '0 GB', which is zero"),
        (
            "{device: mac-mini-m4}",
            "{site: here}",
            "2:3: nodes.a: found no device, expected device (one of mac-mini-m1",
        ),
        ("{device: mac-mini-m4}", "", "nodes.a: found no device"),
        (
            "{device: mac-mini-m4}",
            "mac-mini-m4",
            "nodes.a: found 'mac-mini-m4', expected a mapping with kind, device",
        ),
        (
            "mac-mini-m4}",
            "mac-mini-m4, kind: swich}",
            "nodes.a.kind: found 'swich'; did you",
        ),
        ("mac-mini-m4}", "mac-mini-m4, port: 70000}", "a whole number from 1 to 65535"),
        ("mac-mini-m4}", "mac-mini-m4, port: 7000}", "found a port without an address"),
        ("mac-mini-m4}", "mac-mini-m4, address: 10.0.0.256}", "expected an IP address or a host's name"),
        ("mac-mini-m4}", "mac-mini-m4, ssh: -oProxyCommand=x}", "expected [user@]host"),
        ("mac-mini-m4}", "mac-mini-m4, ssh: me@-x}", "expected [user@]host"),
        ("mac-mini-m4}", "mac-mini-m4, ssh: a b}", "expected [user@]host"),
        ("mac-mini-m4}", "mac-mini-m4, gateway: no}", "found 'no', expected true or false"),
        ("mac-mini-m4}", "mac-mini-m4, site: 3}", "found 3, expected the name of a place"),
        ("nodes:", "color: red\nnodes:", "1:1: color: unknown key"),
        ("nodes:", "name: [x]\nnodes:", "name: found a list of 1, expected text"),
    ],
)
def test_every_fault_is_named_once_with_its_place(wrong: str, right: str, words: str) -> None:
    assert words in one_problem(TWO.replace(wrong, right, 1))


def test_a_switch_computes_nothing() -> None:
    problems = problems_of("nodes: {a: {device: mac-mini-m4}, s: {kind: switch, device: mac-mini-m4, port: 1}}")
    assert [problem.split(": found")[0] for problem in problems] == [
        "t.yaml:1:53: nodes.s.device",
        "t.yaml:1:74: nodes.s.port",
    ]


@pytest.mark.parametrize("name", ["a.b", "-a", "a b", "", "x" * 65, "ä"])
def test_names_of_nodes_fit_into_paths_keys_and_commands(name: str) -> None:
    assert "expected a name of letters, digits" in one_problem({"nodes": {name: {"device": "x86-laptop"}}})


def test_a_link_to_itself_or_under_a_taken_name_is_refused() -> None:
    nodes = {name: {"device": "x86-laptop"} for name in ("a", "b", "a-b", "b-c", "c")}
    pairs = [("a", "b"), ("a", "a"), ("a-b", "c"), ("a", "b-c")]
    problems = problems_of({"nodes": nodes, "links": [{"between": list(pair), "type": "wan"} for pair in pairs]})
    assert "found a link from a to itself" in " ".join(problems)
    assert "links[3].between: found a second link called a-b-c" in " ".join(problems)


def test_a_cluster_without_a_worker_or_without_nodes_is_refused() -> None:
    assert "found switches only" in one_problem("nodes: {s: {kind: switch}}")
    assert "nodes: found nothing, expected a mapping of nodes" in one_problem("name: x")
    assert "expected a mapping with name" in one_problem("[1, 2]")
    assert "found an empty file, expected a topology" in one_problem("")
    assert "links: found 'none', expected a list" in one_problem("nodes: {a: {device: x86-laptop}}\nlinks: none")


def test_one_worker_alone_is_a_cluster() -> None:
    assert loads("nodes: {a: {device: x86-laptop}}").workers == ["a"]


def test_two_separate_parts_report_the_smaller() -> None:
    nodes = {name: {"device": "x86-laptop"} for name in "abcde"}
    links = [{"between": pair, "type": "wan"} for pair in (["d", "e"], ["a", "b"], ["b", "c"])]
    problems = problems_of({"nodes": nodes, "links": links})
    assert [problem.split(":")[1] for problem in problems] == [" nodes.d", " nodes.e"]


def test_a_node_that_is_no_gateway_joins_nobody() -> None:
    nodes = {name: {"device": "x86-laptop"} for name in "abc"}
    links = [{"between": pair, "type": "wan"} for pair in (["a", "b"], ["b", "c"])]
    assert len(loads({"nodes": nodes, "links": links}).route("a", "c")) == 2
    nodes["b"]["gateway"] = False  # type: ignore[assignment]
    # b reaches both; a and c reach b but not each other.
    assert "no route from c to all of a, b" in one_problem({"nodes": nodes, "links": links})


def test_workers_that_forward_nothing_may_all_be_linked_directly_or_hang_on_one_switch() -> None:
    worker = {"device": "x86-laptop", "gateway": False}
    triangle = [{"between": pair, "type": "wan"} for pair in (["a", "b"], ["b", "c"], ["a", "c"])]
    assert len(loads({"nodes": dict.fromkeys("abc", worker), "links": triangle}).route("a", "c")) == 1
    star = [{"between": [name, "s"], "type": "wan"} for name in "abc"]
    nodes = dict.fromkeys("abc", worker) | {"s": {"kind": "switch"}}
    assert len(loads({"nodes": nodes, "links": star}).route("a", "c")) == 2


@pytest.mark.parametrize("end", ["b, zz", "zz, b"])
def test_a_link_to_a_node_that_nobody_can_guess_makes_nobody_unreachable_as_well(end: str) -> None:
    text = TWO.replace("[a, b]", f"[{end}]").replace("links:", "links:\n  - {between: [a, yy], type: wan}")
    assert [problem.partition("]: ")[2].partition(";")[0] for problem in problems_of(text)] == [
        "unknown node 'yy'",
        "unknown node 'zz'",
    ]


def test_equal_names_are_found_even_under_equal_keys() -> None:
    text = TWO.replace("{device: mac-mini-m4}", "{device: mac-mini-m4, device: mac-mini-m1}")
    assert "2:28: nodes.a.device: found a duplicate key" in one_problem(text)


def test_a_syntax_error_has_its_line_and_column() -> None:
    assert one_problem(TWO + "  - [").startswith("t.yaml:7:1: YAML syntax")
