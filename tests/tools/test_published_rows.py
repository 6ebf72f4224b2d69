"""The table of published rows: its arithmetic, what the package has copied from it, and the pages."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace

import numpy as np
import pytest

from simcluster.lm.plan.cluster_model_costs import ClusterModelCosts
from simcluster.lm.plan.engines import DOT_PRODUCT, ENGINES
from simcluster.lm.plan.intervals import FACTORS, MOST_NODES, SOURCE
from simcluster.lm.plan.placements import rank
from simcluster.lm.plan.times import Lengths
from tests.support.root import ROOT
from tools import tables
from tools.published_rows.__main__ import summary, table
from tools.published_rows.fit import fit, left_out, neutral_s, pairs, predicted_s
from tools.published_rows.intervals import factors_by_kind, most_nodes
from tools.published_rows.rows import CONTEXT, PublishedRow, published

ROWS = published()
LEFT_OUT_S = left_out(ROWS, lambda *_: False)


def one(model: str, nodes: int, device: str) -> PublishedRow:
    return next(row for row in ROWS if (row.model, row.nodes, row.device) == (model, nodes, device))


def test_every_row_has_a_source_and_a_place_in_it() -> None:
    assert len(ROWS) >= 20
    assert [row for row in ROWS if not (row.source.startswith("https://") and row.where)] == []
    assert re.findall(r"\d+ published", SOURCE) == [f"{len(ROWS)} published"]


def test_a_row_has_the_terms_of_its_engine_by_hand() -> None:
    # Llama 2 7B: 32 layers of 4 x 4096^2 + 3 x 4096 x 11008 weights and two norms, a table of 32,000 x 4096 and a norm
    # for the logits, each of 0.5625 bytes. The cache: 65 tokens of 2 x 4096 numbers of 34/32 bytes in every layer.
    layer = (4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096) * 0.5625 + 65 * 2 * 4096 * 34 / 32
    head = (32000 * 4096 + 4096) * 0.5625
    assert CONTEXT == 64
    row = one("llama-2-7b", 8, "raspberry-pi-4")
    memory, reduce, incast = row.terms
    # Eight nodes read an eighth of the layers each, at 5.5 GB/s; the first of them has all logits.
    assert memory.coefficient == pytest.approx((32 * layer / 8 + head) / 5.5e9, rel=1e-9)
    assert memory.powers == {"memory distributed-llama old arm cpu": -1.0, "dot product": -1.0}
    assert (reduce.coefficient, incast.coefficient) == (64, 64 * 7 * 4096)
    assert len(one("llama-2-7b", 4, "raspberry-pi-4").terms) == 2
    # A pipeline of 4 nodes sends 4 times per token: 3 hops, and back to the first.
    hops = one("gpt-oss-120b", 4, "strix-halo").terms[2]
    assert (hops.coefficient, hops.powers) == (4, {"hop llama.cpp": 1.0})


def test_a_prediction_multiplies_and_adds_the_terms() -> None:
    row = one("gpt-oss-20b", 4, "strix-halo")
    memory, layer, hop = row.terms
    values = {"memory llama.cpp cuda": 0.5, "layer llama.cpp": 1e-4, "hop llama.cpp": 5e-3}
    expected_s = row.fixed_s + 2 * memory.coefficient + 24 * 1e-4 + 4 * 5e-3
    assert (layer.coefficient, hop.coefficient) == (24, 4)
    assert predicted_s(row, values) == pytest.approx(expected_s, rel=1e-12)
    assert neutral_s(row) == pytest.approx(row.fixed_s + memory.coefficient, rel=1e-12)


def test_a_fit_finds_the_parameters_with_which_rows_were_made() -> None:
    values = {name: value * (1 + 0.1 * (i % 3)) for i, (name, value) in enumerate(fit(ROWS).items())}
    values["reduce distributed-llama"] = 1e-3  # the rows leave a choice where it is only a small part of a token's time
    found = fit([replace(row, measured_s=predicted_s(row, values)) for row in ROWS])
    assert found == pytest.approx(values, rel=0.05)  # the guesses pull a little
    assert found["memory llama.cpp cuda"] == pytest.approx(values["memory llama.cpp cuda"], rel=5e-3)


def test_a_row_has_no_part_in_its_own_prediction() -> None:
    changed = [replace(ROWS[0], measured_s=3 * ROWS[0].measured_s), *ROWS[1:]]
    found = left_out(changed, lambda *_: False)
    assert found[0] == pytest.approx(LEFT_OUT_S[0], rel=1e-9)
    assert found[1] != pytest.approx(LEFT_OUT_S[1], rel=1e-3)


def test_rows_left_out_are_predicted_within_a_tenth_and_in_the_right_order() -> None:
    errors = [abs(row.measured_s / row_s - 1) for row, row_s in zip(ROWS, LEFT_OUT_S, strict=True)]
    assert np.median(errors) <= 0.10
    ordered = pairs(ROWS, LEFT_OUT_S)
    assert len(ordered) >= 30
    assert sum(ordered) >= 0.9 * len(ordered)
    assert 3 * len(fit(ROWS)) < len(ROWS)


def test_pairs_differ_in_placement_or_number_of_nodes_alone() -> None:
    two, four, other = (one("llama-2-7b", 2, "raspberry-pi-4"), one("llama-2-7b", 4, "raspberry-pi-4"),
                        one("llama-2-13b", 4, "raspberry-pi-4"))  # fmt: skip
    assert pairs([two, four, other, two], [2.0, 1.0, 3.0, 2.0]) == [True, True]
    assert pairs([two, four], [1.0, 2.0]) == [False]


def test_the_terms_of_the_package_are_those_of_the_fit() -> None:
    values = fit(ROWS)
    for name in ("llama.cpp", "mlx", "distributed-llama"):
        for part, share in ENGINES[name].memory.items():
            assert share == pytest.approx(values[f"memory {name} {part}"], rel=0.01), (name, part)
    assert ENGINES["exo"].memory == ENGINES["mlx"].memory
    assert pytest.approx(values["dot product"], rel=0.01) == DOT_PRODUCT
    copied = {
        "layer llama.cpp": ENGINES["llama.cpp"].layer_s, "layer exo": ENGINES["exo"].layer_s,
        "hop llama.cpp": ENGINES["llama.cpp"].hop_s, "hop mlx": ENGINES["mlx"].hop_s,
        "reduce distributed-llama": ENGINES["distributed-llama"].reduce_s,
        "incast": ENGINES["distributed-llama"].incast_s,
    }  # fmt: skip
    assert copied == pytest.approx({name: values[name] for name in copied}, rel=0.01)
    assert ENGINES["exo"].hop_s == ENGINES["mlx"].hop_s


def test_the_plan_gives_each_row_of_a_present_engine_the_fitted_time() -> None:
    values, seen = fit(ROWS), 0
    for row in ROWS:
        if row.is_old or len(row.memory_Bps) > 1:  # the plan does not divide layers evenly among unlike nodes
            continue
        shelf = ClusterModelCosts(row.topology, row.shape, Lengths(CONTEXT, 1), engine=ENGINES[row.engine])
        (found,) = (
            placement
            for placement in rank(shelf, 1).placements
            if placement.kind == row.placement and len(placement.parts) == row.nodes and placement.parts[0].node == "n0"
        )
        assert found.token_s == pytest.approx(predicted_s(row, values), rel=0.005), row
        seen += 1
    assert seen > 50


def test_intervals_of_the_package_are_those_of_the_rows() -> None:
    found = factors_by_kind(ROWS)
    for kind, distances in FACTORS.items():
        for distance, ends in distances.items():
            assert ends == pytest.approx(found[kind][distance], abs=0.006), (kind, distance)
    assert most_nodes(ROWS) == MOST_NODES
    assert FACTORS["tensor"]["beyond"][0] < FACTORS["tensor"]["near"][0]


def test_the_pages_have_the_table_and_its_summary() -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(table(ROWS))
    assert tables.read(tables.TABLES / "published-rows.csv") == list(csv.reader(text.getvalue().splitlines()))
    page = " ".join((ROOT / "docs" / "plan.md").read_text(encoding="utf-8").split())
    first, second, *_ = summary(ROWS)
    rows, parameters, error = re.findall(r"(\d+) rows, (\d+) parameters; .* (\d+\.\d)%", first)[0]
    assert f"{rows} published rows" in page
    assert f"{parameters} parameters" in page
    assert f"{error} %" in page
    assert re.findall(r"\d+ of \d+ pairs", second)[0] in page
