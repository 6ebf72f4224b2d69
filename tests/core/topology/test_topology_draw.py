"""A drawing shows every node and link, with boxes and labels apart, fetches nothing and runs nothing."""

from __future__ import annotations

import itertools
import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest

from simcluster.documents.shipped import shipped_names
from simcluster.topology import (
    Topology,
    chain,
    complete,
    draw_html,
    draw_svg,
    load,
    loads,
    ring,
    star,
    torus,
    two_sites,
)
from simcluster.topology.draw.draw import MAX_LABELLED, _arrange
from simcluster.topology.draw.labels import Box, overlap, place_labels, touches
from simcluster.topology.draw.layout import _fan

SHAPES: dict[str, Callable[[], Topology]] = {
    **{name: lambda name=name: load(name) for name in shipped_names("topologies")},  # type: ignore[misc]
    "star-40": lambda: star(40),
    "ring-12": lambda: ring(12),
    "torus-4x5": lambda: torus(4, 5),
    "complete-8": lambda: complete(8),
    "chain-16": lambda: chain(16),
    "sites": lambda: two_sites(9, 2),
    "one": lambda: chain(1),
    "two": lambda: chain(2),
}


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [element.text or "" for element in root.iter() if element.tag.endswith("text")]


@pytest.mark.parametrize("shape", SHAPES)
def test_no_two_nodes_overlap(shape: str) -> None:
    drawing = _arrange(SHAPES[shape](), None)
    boxes = [(*drawing.at[name], *drawing.sizes[name]) for name in drawing.at]
    for (ax, ay, aw, ah), (bx, by, bw, bh) in itertools.combinations(boxes, 2):
        assert abs(ax - bx) >= (aw + bw) / 2 or abs(ay - by) >= (ah + bh) / 2


@pytest.mark.parametrize("shape", [*shipped_names("topologies"), "ring-12", "chain-16", "sites"])
def test_no_label_lies_on_a_node_or_another_label(shape: str) -> None:
    topology = SHAPES[shape]()
    use = {link.name: (0.5, 123_456_789.0) for link in topology.links}
    for link_use in (None, use):
        drawing = _arrange(topology, link_use)
        boxes = [Box(*drawing.at[name], *(side / 2 for side in drawing.sizes[name])) for name in drawing.at]
        labels = [place for place in drawing.places if place is not None]
        assert len(labels) == len(topology.links) or len(topology.links) > MAX_LABELLED
        assert not any(overlap(label, box) for label in labels for box in boxes)
        assert not any(overlap(a, b) for a, b in itertools.combinations(labels, 2))


def test_labels_that_find_no_place_are_reported() -> None:
    _, clear = place_labels([((0.0, 0.0), (50.0, 0.0))], [(40.0, 20.0)], [Box(25.0, 0.0, 25.0, 10.0)])
    assert not clear


def test_labels_of_two_crossing_links_move_apart_and_keep_away_from_the_line_of_the_other_one() -> None:
    cross = [((0.0, 0.0), (200.0, 200.0)), ((0.0, 200.0), (200.0, 0.0))]
    (first, second), clear = place_labels(cross, [(40.0, 20.0), (40.0, 20.0)], [])
    assert clear
    assert first is not None
    assert second is not None
    assert abs(first.x - second.x) >= 40 or abs(first.y - second.y) >= 20
    assert not touches(first, cross[1], air=4.9)
    assert not touches(second, cross[0], air=4.9)


def test_a_drawing_names_nodes_with_ranks_devices_and_the_numbers_of_links() -> None:
    words = texts(draw_svg(load("smolcluster", overrides={"nodes.pi4.straggler.factor": 10})))
    assert {
        "0 · mini1",
        "4 · pi4",
        "raspberry-pi-4",
        "10 times slower",
        "16.4 Gbps",
        "941 Mbps",
        "150 us, full",
    } <= set(words)


@pytest.mark.parametrize(("busy", "step"), [(0.0, 0), (0.049, 0), (0.05, 1), (0.3, 2), (0.5, 3), (0.8, 4), (1.0, 4)])
def test_use_of_a_link_is_coloured_and_written_on_it(busy: float, step: int) -> None:
    svg = draw_svg(chain(2), {"n0-n1": (busy, 2.5e6)})
    assert f'class="link full busy{step}" x1=' in svg
    assert f"{busy * 100:.0f} % busy, 2.5 MB" in texts(svg)
    assert "over 80 % busy" in texts(svg)
    assert "busy" not in "".join(texts(draw_svg(chain(2))))


def test_a_link_that_the_run_did_not_use_is_drawn_as_idle() -> None:
    assert 'class="link full busy0" x1=' in draw_svg(chain(2), {})


def test_duplex_is_seen_and_explained() -> None:
    assert 'class="link half" x1=' in draw_svg(chain(2, duplex="half"))
    assert "half duplex: both ways share it" in texts(draw_svg(chain(2, duplex="half")))
    assert "contention-free: every flow has all of it" in texts(draw_svg(chain(2, duplex="free")))
    assert not any("duplex" in text for text in texts(draw_svg(chain(2))))


def test_more_bandwidth_is_drawn_wider() -> None:
    widths = [
        float(re.findall(r'stroke-width="([\d.]+)"><title>', draw_svg(chain(2, bandwidth=bandwidth)))[0])
        for bandwidth in ("1 Mbps", "100 Mbps", "10 Gbps")
    ]
    assert widths == sorted(set(widths))


def test_many_equal_links_are_described_once() -> None:
    words = texts(draw_svg(complete(9)))
    assert words.count("1 Gbps") == 0
    assert "links without numbers: 1 Gbps, 50 us, full" in words
    changed = texts(draw_svg(load(complete(9), overrides={"links.n0-n1.bandwidth": "2 Gbps"})))
    assert changed.count("2 Gbps") == 1


def test_sites_are_outlined_if_there_are_several() -> None:
    assert {"home A", "home B"} <= set(texts(draw_svg(load("two-sites-wan"))))
    assert "desk" not in texts(draw_svg(load("smolcluster")))


def test_the_name_of_a_site_stands_where_no_link_crosses_it() -> None:
    svg = draw_svg(load("halos-4-regions"))
    places = {name: side for side, name in re.findall(r'<text class="small (start|end)" [^>]*>(region \d)</text>', svg)}
    # Regions stand 1 2 over 4 3: a link from above and the left comes into 3, and from above and the right into 4.
    assert places == {"region 1": "start", "region 2": "start", "region 3": "end", "region 4": "start"}


def test_leaves_keep_their_order_whatever_the_last_bit_of_a_diagonal_is() -> None:
    """At 45 degrees both orders fit; kernels of two processors round the centre of a region differently."""
    leaves = ["a", "b", "c"]
    above = _fan((1.0, math.nextafter(1.0, 2.0)), leaves, 4)
    below = _fan((1.0, math.nextafter(1.0, 0.0)), leaves, 4)
    assert all(above[leaf] == pytest.approx(below[leaf]) for leaf in leaves)


def test_a_column_of_the_page_in_which_nothing_stands_is_left_out() -> None:
    assert "<th>address</th>" in draw_html(load("smolcluster"))
    page = draw_html(load("star-8-gigabit"))
    assert not re.search("<th>(address|site|type)</th>", page)
    assert "<th>latency</th>" in page


def test_text_from_a_file_cannot_become_markup() -> None:
    evil = "</title><script>alert(1)</script>"
    nodes = {name: {"device": "x86-laptop", "site": f"{evil[:50]}{name}"} for name in "ab"}
    link = {"between": ["a", "b"], "type": "wan"}
    topology = loads({"name": evil, "description": evil, "nodes": nodes, "links": [link]})
    page = draw_html(topology)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert ElementTree.fromstring(draw_svg(topology)).tag.endswith("svg")


def test_the_page_fetches_nothing_and_shows_sources() -> None:
    page = draw_html(load("smolcluster"))
    # The namespace is a name, not an address that anybody opens.
    assert "http" not in page.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"<(script|link|img|iframe)\b|@import|url\(", page)
    assert "prefers-color-scheme: dark" in page
    assert "1448 bytes of data in each 1538 on the wire" in page
    assert "10.10.0.1" in page


def test_a_drawing_is_the_same_every_time() -> None:
    assert draw_svg(load("halos-4-regions")) == draw_svg(load("halos-4-regions"))


def test_thousands_of_nodes_are_drawn_without_labels() -> None:
    svg = draw_svg(star(1500))
    assert svg.count('<g class="worker">') == 1500
    assert texts(svg).count("50 us, full") == 0
