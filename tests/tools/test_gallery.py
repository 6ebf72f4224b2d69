"""The gallery shows what there is: every picture is made by a command, shown on a page, small, and current."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import simcluster
from simcluster.algorithms import ALGORITHMS
from simcluster.process.kernels import numerics
from simcluster.runs.record import Span
from tests.support.levels import sample_of
from tests.support.root import ROOT
from tools.gallery.algorithms import SCENES
from tools.gallery.images import FOLDER, images, is_current
from tools.gallery.pages.kept import notes
from tools.gallery.pages.scenes import SCENES as PAGES
from tools.gallery.pays.draw import draw
from tools.gallery.pays.measure import OTHERS, WITHIN, speed_up
from tools.gallery.steps import Message, messages

PAGE = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", sample_of(images(), 4))
def test_a_picture_is_drawn_again_to_the_same_bytes(name: str) -> None:
    assert is_current(name, images()[name]()), f"`python -m tools.gallery {name}` draws it again"


def test_every_picture_is_shown_and_every_one_shown_is_there() -> None:
    shown = set(re.findall(r"!\[[^\]]+\]\(figures/([^)]+)\)", PAGE))
    assert shown == {*images(), *(f"pages/{scene.name}.png" for scene in PAGES)}
    assert all((FOLDER / name).is_file() for name in shown)
    assert re.findall(r"!\[[^\]]+\]\(docs/figures/([^)]+)\)", README) == ["shelf.svg", "pays.svg", "terminal.svg"]


def test_every_algorithm_has_its_picture() -> None:
    assert {scene.algorithm for scene in SCENES} == set(ALGORITHMS)


def test_all_pictures_together_are_small_and_none_has_a_script_or_a_link() -> None:
    assert sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file()) < 3_000_000
    assert (FOLDER / "terminal.svg").stat().st_size < 200_000
    for name in images():
        text = (FOLDER / name).read_text(encoding="utf-8")
        tags = {node.tag.rpartition("}")[2] for node in ET.fromstring(text).iter()}
        assert not tags & {"script", "foreignObject", "image", "a", "use"}, name
        assert "prefers-color-scheme:dark" in text.replace(" ", ""), name


def test_every_screenshot_says_what_its_page_was_made_of() -> None:
    known = notes()
    assert known.keys() == {scene.name for scene in PAGES}
    for name, note in known.items():
        assert re.fullmatch("[0-9a-f]{64}", note["sources_sha256"]), name
        assert (FOLDER / "pages" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_a_message_goes_from_its_send_to_the_receipt_with_its_tag() -> None:
    """Rank 0 sends a, b and another a to rank 1, which takes b first; the last is never received."""
    spans = [
        *(
            (0, Span("send", start_s, start_s + 0.5, 1, tag, 8))
            for start_s, tag in ((0.0, "a"), (1.0, "b"), (2.0, "a"))
        ),
        (1, Span("recv", 0.0, 3.0, 0, "b", 8)),
        (1, Span("recv", 3.0, 4.0, 0, "a", 8)),
        (1, Span("compute", 4.0, 5.0, -1, "", 0)),
    ]
    assert messages(spans) == [Message(0, 1, 1.0, 3.0, 8), Message(0, 1, 0.0, 4.0, 8)]


def test_a_measurement_is_drawn_above_the_simulated_shelves() -> None:
    times = {"predicted": {"alone_s": 3.8, "together_s": 2.0}, "measured": {"alone_s": 4.0, "together_s": 2.0}}
    shelves = {"two Pis": 1.75}
    simulated, both = draw(None, shelves), draw({"measured_on": "2026-11-30", **times}, shelves)
    assert re.findall(r">([\d.]+\d)</text>", simulated) == ["1.75"]
    assert re.findall(r">(\d\.\d\d)</text>", both) == ["1.90", "2.00", "1.75"]
    assert ("measured" in both, "measured" in simulated) == (True, False)


def test_the_stored_speed_up_of_two_hosts_is_the_predicted_one() -> None:
    content = json.loads((FOLDER / "data" / "pays.json").read_text(encoding="utf-8"))
    assert abs(speed_up(content["predicted"]) / speed_up(content["measured"]) - 1) <= WITHIN
    assert content["others"] <= OTHERS
    assert f"{speed_up(content['measured']):.2f}<" in (FOLDER / "pays.svg").read_text(encoding="utf-8")


def test_the_recorded_weights_are_the_same_in_the_simulator_and_over_tcp() -> None:
    text = (FOLDER / "data" / "terminal.json").read_text(encoding="utf-8")
    weights = set(re.findall(r"weights ([0-9a-f]{16})", text))
    assert len(weights) == 1
    assert "The same weights to the bit" in text
    assert Path(ROOT / "docs" / "figures" / "terminal.svg").read_text(encoding="utf-8").count(weights.pop()) == 2


@pytest.mark.slow
def test_the_recorded_run_in_the_simulator_is_the_one_of_now(tmp_path: Path) -> None:
    """Virtual time, loss, messages and bytes are the same on every machine, and the weights with the same kernels."""
    summary = simcluster.run("quickstart", out=tmp_path / "run", report=False).summary
    content = json.loads((FOLDER / "data" / "terminal.json").read_text(encoding="utf-8"))
    recorded = content["commands"][0]["output"]
    assert f"200 steps in {summary['elapsed_s']:.3f} s (virtual)" in recorded
    assert f"held-out loss {summary['loss']:.4f}" in recorded
    assert f"{summary['messages_sent']:,} messages, {summary['bytes_sent']:,} bytes sent" in recorded
    if numerics() == content["numerics"]:
        assert summary["weights_sha256"][:16] in recorded
