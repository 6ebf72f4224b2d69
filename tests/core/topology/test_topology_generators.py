"""Regular topologies have the nodes, the links and the bandwidths that their names promise."""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcluster import topology as package
from simcluster.errors import UsageError
from simcluster.topology import Topology, chain, complete, load, loads, ring, star, torus, two_sites
from simcluster.topology.draw.facts import describe, halves_Bps, survey
from simcluster.topology.presets.generators import GENERATORS


def degrees(topology: Topology) -> Counter[int]:
    return Counter(dict(topology.graph.degree).values())


def test_links_of_every_shape_are_counted_right() -> None:
    assert (len(star(5).links), degrees(star(5))) == (5, Counter({1: 5, 5: 1}))
    assert (len(ring(5).links), degrees(ring(5))) == (5, Counter({2: 5}))
    assert (len(chain(5).links), degrees(chain(5))) == (4, Counter({1: 2, 2: 3}))
    assert (len(complete(5).links), degrees(complete(5))) == (10, Counter({4: 5}))
    # Every node of a torus has four links, so there are twice as many links as nodes.
    assert (len(torus(3, 4).links), degrees(torus(3, 4))) == (24, Counter({4: 12}))
    assert (len(two_sites(3, 2).links), degrees(two_sites(3, 2))) == (6, Counter({1: 5, 4: 1, 3: 1}))


def test_a_torus_of_two_or_one_has_no_double_link() -> None:
    # 2 x 2 is a ring of four, 1 x 5 a ring of five, 1 x 2 one link.
    assert degrees(torus(2, 2)) == Counter({2: 4})
    assert degrees(torus(1, 5)) == Counter({2: 5})
    assert len(torus(1, 2).links) == 1
    assert torus(1, 1).links == ()


def test_numbers_may_be_text_or_plain_and_hold_for_every_link() -> None:
    as_text = ring(4, bandwidth="2.5 Gbps", latency="75 us", duplex="half", device={"flops": "1 TFLOP/s"})
    as_numbers = ring(4, bandwidth=312.5e6, latency=75e-6, duplex="half", device={"flops": "1 TFLOP/s"})
    assert as_text == as_numbers
    assert {(link.bandwidth_Bps, link.latency_s, link.duplex) for link in as_text.links} == {(312.5e6, 75e-6, "half")}
    device = as_text.nodes["n3"].device
    assert device is not None
    assert device.flops_per_s == 1e12


def test_two_sites_differ_in_name_and_talk_over_the_slow_link() -> None:
    topology = two_sites(2, 2, wan_bandwidth="10 Mbps", wan_latency="30 ms", latency=0.0)
    assert [topology.nodes[name].site for name in topology.workers] == [
        "site 0",
        "site 0",
        "site 1",
        "site 1",
    ]
    assert topology.route_bandwidth_Bps("n0", "n3") == 1.25e6
    assert topology.route_latency_s("n0", "n3") == 0.03


@pytest.mark.parametrize("make", [lambda: star(0), lambda: ring(2), lambda: torus(0, 3), lambda: complete(0)])
def test_too_few_workers_are_refused(make: Callable[[], Topology]) -> None:
    with pytest.raises(UsageError, match="at least"):
        make()


def test_a_generated_topology_goes_through_the_checks_of_a_file() -> None:
    with pytest.raises(UsageError, match="did you mean 'x86-laptop'"):
        star(2, device="x86-labtop")
    with pytest.raises(UsageError, match="without a unit"):
        star(2, bandwidth="5")


@given(st.integers(3, 12), st.floats(1.0, 1e12), st.floats(1e-9, 1.0))
def test_the_document_of_a_generated_topology_reads_back_equal(size: int, bandwidth: float, latency: float) -> None:
    topology = ring(size, bandwidth=bandwidth, latency=latency)
    assert topology.links[0].bandwidth_Bps == bandwidth
    assert topology.links[0].latency_s == latency
    assert loads(topology.document) == topology


# what `check` says


def test_the_survey_finds_the_extreme_routes() -> None:
    found = survey(two_sites(2, 3, wan_bandwidth="10 Mbps"))
    assert found is not None
    assert found.diameter == found.longest == found.narrowest == ("n0", "n2")
    assert found.exact
    assert survey(chain(1)) is None


def test_halves_meet_their_textbook_bandwidth() -> None:
    # A star is not blocking: n/2 flows at full speed. Across the wan, all flows share it. On a chain 0-1-2-3
    # the flows 0>2 and 1>3 share the middle link. In a complete graph each flow has a link.
    assert halves_Bps(star(8, bandwidth=1e6)) == 4e6
    assert halves_Bps(two_sites(3, 3, bandwidth=1e6, wan_bandwidth=1e3)) == 1e3
    assert halves_Bps(chain(4, bandwidth=1e6)) == 1e6
    assert halves_Bps(complete(6, bandwidth=1e6)) == 3e6
    assert halves_Bps(chain(4, bandwidth=1e6, duplex="free")) == 2e6
    assert halves_Bps(chain(1)) == 0.0


def test_the_description_says_what_a_user_wants_to_know() -> None:
    text = describe(two_sites(2, 1, bandwidth="1 Gbps", latency="50 us", wan_bandwidth="8 Mbps", wan_latency="20 ms"))
    lines = text.splitlines()
    assert lines[0] == "two-sites-2-1: 3 workers, 2 switches, 4 links"
    overhead = "40 us per piece of work, 5 us per operator"
    assert f"0     n0    x86-laptop  on cpu: 300 GFLOP/s, memory 14.5 of 16 GB at 38 GB/s, {overhead}, site 0" in lines
    assert "sw0-sw1  8 Mbps     20 ms    full" in lines
    assert "compute: 900 GFLOP/s together, all workers are equally fast" in lines
    assert "diameter: 3 hops, n0 > sw0 > sw1 > n2" in lines
    assert "longest latency: 20.1 ms one way, n0 > sw0 > sw1 > n2" in lines
    # 1 MB at 1 MB/s takes 1 s, and 20.1 ms to get there.
    assert "narrowest route: 8 Mbps, n0 > sw0 > sw1 > n2; 1 MB takes 1.02 s" in lines


def test_the_description_of_a_large_cluster_says_that_it_looked_at_a_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("simcluster.topology.draw.facts.MAX_PAIRS_OF", 4)
    assert "(routes between 4 workers, evenly chosen)" in describe(star(8))
    assert "evenly chosen" not in describe(star(4))


def test_as_many_routes_are_looked_at_as_can_be_in_a_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simcluster.topology.draw.facts.MOST_WORK", 2000)
    monkeypatch.setattr("simcluster.topology.draw.facts.MAX_PAIRS_OF", 16)
    # A search on the chain of 64 follows 64 + 2 * 63 = 190 links: that of 16 workers 3,040, of 8 workers 1,520. Between
    # 8 workers there are 28 routes of at most 56 hops, 1,568 together, and between 4 there are 6: 760 + 288.
    lines = describe(chain(64)).splitlines()
    assert "(routes between 4 workers, evenly chosen)" in lines
    assert "diameter: 48 hops, n0 > n1 > n2 > n3 > n4 > n5 > ... > n43 > n44 > n45 > n46 > n47 > n48" in lines
    assert "lower to upper half of the ranks, all at once: not computed for this many routes" in lines
    # All workers of a star share one search, of 65 + 2 * 64 links, and 120 routes have 2 hops each.
    assert "(routes between 16 workers, evenly chosen)" in describe(star(64))
    assert halves_Bps(star(64, bandwidth=1e6)) == 32e6


def test_stragglers_count_in_the_description() -> None:
    topology = load(star(2), overrides={"nodes.n1.straggler.factor": 4})
    # 300 + 300 / 4 GFLOP/s
    assert "compute: 375 GFLOP/s together, the fastest worker is 4 times as fast as the slowest" in describe(topology)
    assert "4 times slower" in describe(topology)


def test_editors_and_type_checkers_see_every_generator() -> None:
    """They do not see what the table adds when the package is imported."""
    body = ast.parse(inspect.getsource(package)).body
    (static,) = [part for part in body if isinstance(part, ast.If) and ast.unparse(part.test) == "TYPE_CHECKING"]
    assert [ast.unparse(line) for line in static.body] == [f"{name} = _read(generators.{name})" for name in GENERATORS]
    assert set(GENERATORS) <= set(package.__all__)
    declared = {name for name, hint in Topology.__annotations__.items() if hint == "ClassVar[Callable[..., Topology]]"}
    assert declared == {*GENERATORS, "from_networkx", "load"}


@pytest.mark.parametrize("name", GENERATORS)
def test_a_generator_of_the_table_has_its_own_signature_everywhere(name: str) -> None:
    for made in (getattr(Topology, name), getattr(package, name)):
        assert list(inspect.signature(made).parameters) == list(inspect.signature(GENERATORS[name]).parameters)
        assert made.__doc__ == GENERATORS[name].__doc__
