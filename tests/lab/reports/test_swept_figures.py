"""What sweeps are asked for: time to the target and its crossings, speed-up, efficiency, who wins where."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from simcluster.errors import UsageError
from simcluster.lab.reports.sweeps.lines import combination
from simcluster.lab.reports.sweeps.plots import SweepPlots
from simcluster.lab.reports.sweeps.report import answers

BANDWIDTH, NAME, WORKERS = "topology.bandwidth", "algorithm.name", "topology.workers"
TARGET = "time_to_target_s"


def sweep_of(rows: list[dict[str, Any]], keys: list[str], runs: list[Any] | None = None) -> SweepPlots:
    table = pd.DataFrame([{"seed": 0, "status": "done", **row} for row in rows])
    return SweepPlots(table, keys, runs or [None] * len(rows))


def two_algorithms() -> SweepPlots:
    """On 10, 100 and 1000 Mbps: `lean` takes 2 s always, `chatty` 200 s, 20 s, 1 s."""
    times = {"lean": (2.0, 2.0, 2.0), "chatty": (200.0, 20.0, 1.0)}
    return sweep_of(
        [
            {BANDWIDTH: f"{mbps} Mbps", NAME: name, TARGET: time_s, "elapsed_s": 1.0}
            for name, all_s in times.items()
            for mbps, time_s in zip((10, 100, 1000), all_s, strict=True)
        ],
        [BANDWIDTH, NAME],
    )


def traces(figure: Any) -> dict[str, Any]:
    return {trace.name: trace for trace in figure.data if trace.name}


def test_a_crossing_is_marked_where_the_lines_meet_and_named_in_words() -> None:
    """Between 100 and 1000 Mbps chatty falls from 20 to 1 s, 1.301 decades; it is at 2 s after 1 decade of them."""
    where = 10 ** (2 + math.log(20 / 2) / math.log(20 / 1))
    plots = two_algorithms()
    (found,) = plots.crossings(BANDWIDTH)
    assert (found.place, found.height) == pytest.approx((where, 2.0))
    figure = plots.time_to_target(BANDWIDTH)
    mark = traces(figure)["crossing"]
    assert (mark.x[0], mark.y[0]) == pytest.approx((where, 2.0))
    (annotation,) = figure.layout.annotations
    assert annotation.text == "587 Mbps, 2.00 s"
    assert (annotation.x, annotation.y) == pytest.approx((math.log10(where), math.log10(2)))
    said = figure.layout.xaxis.title.text.replace("</span><br><span style='font-size:11px'>", " ")
    assert "Below bandwidth 587 Mbps the soonest is lean, above it chatty (2.00 s there)." in said


def test_lines_of_the_time_to_the_target_stand_at_their_values_in_order() -> None:
    line = traces(two_algorithms().time_to_target())["chatty"]
    assert list(line.x) == pytest.approx([10, 100, 1000])
    assert list(line.y) == [200, 20, 1]


def test_a_place_that_not_every_seed_reached_is_a_gap_and_told() -> None:
    rows = [{"k": k, "seed": seed, TARGET: time_s} for k, seed, time_s in
            ((1, 0, 2.0), (1, 1, 4.0), (2, 0, 3.0), (2, 1, None), (4, 0, 5.0), (4, 1, 5.0))]  # fmt: skip
    figure = sweep_of(rows, ["k"]).time_to_target()
    assert list(traces(figure)["all"].y) == [3.0, None, 5.0]
    assert "Not every run got there at 2." in figure.layout.xaxis.title.text


def test_without_a_crossing_the_soonest_is_named() -> None:
    rows = [{"k": k, NAME: name, TARGET: k * factor} for k in (1, 2) for name, factor in (("a", 1.0), ("b", 2.0))]
    assert "a is soonest everywhere." in sweep_of(rows, ["k", NAME]).time_to_target("k").layout.xaxis.title.text


def test_a_tie_has_no_winner_and_a_constant_grid_no_scale() -> None:
    rows = [{"k": k, NAME: name, TARGET: 0.00127} for k in (1, 2) for name in ("a", "b")]
    plots = sweep_of(rows, ["k", NAME])
    assert "All lines are the same." in plots.time_to_target("k").layout.xaxis.title.text
    assert plots.grid("k", NAME, TARGET).data[0].showscale is False
    rows[3][TARGET] = 1.0  # a and b are equal at k = 1
    plots = sweep_of(rows, ["k", NAME])
    assert "soonest" not in plots.time_to_target("k").layout.xaxis.title.text
    assert plots.grid("k", NAME, TARGET).data[0].showscale is True


def test_a_target_that_is_reached_alike_everywhere_is_too_easy() -> None:
    table = pd.DataFrame([{"k": k, TARGET: 0.00127, "loss": loss} for k, loss in ((1, 0.5), (2, 0.5), (3, 0.7))])
    assert answers(table, ["k"]) == [
        "The target is reached after 1.27 ms everywhere: it is too easy to tell points apart.",
        "The loss is lowest with k 1: 0.5 (and with 1 other), against 0.7 with k 3.",
    ]


def test_a_sweep_without_a_target_says_how_to_have_one() -> None:
    with pytest.raises(UsageError, match=r"target accuracy=0\.9"):
        sweep_of([{"k": 1, "elapsed_s": 1.0}], ["k"]).time_to_target()


def run_of(nodes: int, stop: dict[str, Any], **algorithm: Any) -> Any:
    config = {"stop": stop, "workload": {"batch_size": 32}, "algorithm": algorithm}
    return SimpleNamespace(summary={"nodes": dict.fromkeys(map(str, range(nodes)))}, config=config)


def scaled(stop: dict[str, Any], times_s: tuple[float, ...], **columns: Any) -> SweepPlots:
    """2, 4 and 8 workers."""
    rows = [{WORKERS: n, "elapsed_s": time_s, **columns} for n, time_s in zip((2, 4, 8), times_s, strict=True)]
    return sweep_of(rows, [WORKERS], [run_of(n, stop) for n in (2, 4, 8)])


def test_speed_up_is_of_the_work_done_in_a_second() -> None:
    """As many steps on each rank: 10, 12.5 and 20 s for 1, 2 and 4 times the samples: 1, 1.6 and 2 times as fast."""
    plots = scaled({"steps": 100}, (10.0, 12.5, 20.0))
    assert list(traces(plots.speedup())["all"].y) == pytest.approx([1, 1.6, 2.0])
    assert list(traces(plots.speedup())["in proportion"].y) == [1, 2, 4]
    assert list(traces(plots.efficiency())["all"].y) == pytest.approx([1, 0.8, 0.5])


def test_an_epoch_is_the_same_work_on_any_number_of_nodes() -> None:
    plots = scaled({"epochs": 1}, (10.0, 5.0, 4.0))
    assert list(traces(plots.speedup())["all"].y) == pytest.approx([1, 2, 2.5])


@pytest.mark.parametrize("more", [{"time": "1 s"}, {"patience": 3}])
def test_a_time_or_a_patience_that_stopped_the_run_is_no_speed(more: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="runs that stop by steps or epochs"):
        scaled({"steps": 100, **more}, (1.0, 1.0, 1.0)).speedup(by="elapsed_s")


def test_with_a_target_speed_up_is_of_the_time_to_it() -> None:
    rows = [{WORKERS: n, TARGET: s, "elapsed_s": 1.0} for n, s in ((2, 12.0), (4, 6.0), (8, 4.0))]
    plots = sweep_of(rows, [WORKERS], [run_of(n, {"steps": 9}) for n in (2, 4, 8)])
    assert list(traces(plots.speedup())["all"].y) == pytest.approx([1, 2, 3])
    assert list(traces(plots.efficiency())["all"].y) == pytest.approx([1, 1, 0.75])


def test_speed_up_is_seed_by_seed_and_the_band_what_they_span() -> None:
    """Seed 0: 8 -> 4 s, twice; seed 1: 4 -> 1 s, four times: 3 on average (the ratio of the means would be 2.4)."""
    times = {(1, 0): 8.0, (1, 1): 4.0, (2, 0): 4.0, (2, 1): 1.0}
    rows = [{"k": k, "seed": seed, TARGET: time_s} for (k, seed), time_s in times.items()]
    figure = sweep_of(rows, ["k"], [run_of(3, {"steps": 9})] * 4).speedup()
    assert list(traces(figure)["all"].y) == pytest.approx([1, 3])
    (band,) = (trace for trace in figure.data if trace.fill == "toself")
    assert list(band.y) == pytest.approx([1, 4, 2, 1])


def test_words_have_no_proportion() -> None:
    rows = [{NAME: name, TARGET: 1.0} for name in ("a", "b")]
    with pytest.raises(UsageError, match="changes the number of nodes"):
        sweep_of(rows, [NAME], [run_of(3, {"steps": 9})] * 2).efficiency()


def grid_of(times: dict[tuple[int, int, str, int], float | None]) -> SweepPlots:
    """(x, y, algorithm, seed) -> time to the target."""
    rows = [{"x": x, "y": y, NAME: name, "seed": seed, TARGET: s} for (x, y, name, seed), s in times.items()]
    return sweep_of(rows, ["x", "y", NAME])


def test_each_cell_has_its_winner_and_by_how_much() -> None:
    times = {
        (1, 1, "a", 0): 1.0, (1, 1, "a", 1): 2.0, (1, 1, "b", 0): 3.0, (1, 1, "b", 1): 3.0,  # a: 3 / 1.5 = 2 times
        (2, 1, "a", 0): 1.0, (2, 1, "a", 1): 9.0, (2, 1, "b", 0): 4.0, (2, 1, "b", 1): 4.0,  # seeds disagree
        (1, 2, "a", 0): 1.0, (1, 2, "a", 1): None, (1, 2, "b", 0): 7.0, (1, 2, "b", 1): 7.0,  # only b, every time
        (2, 2, "a", 0): None, (2, 2, "b", 0): None,  # nobody
    }  # fmt: skip
    figure = grid_of(times).winner("x", "y", NAME)
    maps = {trace.name: trace for trace in figure.data if trace.type == "heatmap"}
    assert list(maps) == ["a", "b", "undecided"]
    assert [list(row) for row in maps["a"].text] == [["2.00\N{MULTIPLICATION SIGN}", ""], ["", ""]]
    assert [list(row) for row in maps["b"].text] == [["", ""], ["only", ""]]
    assert [list(row) for row in maps["undecided"].text] == [["", "\N{ALMOST EQUAL TO}"], ["", ""]]
    assert maps["a"].customdata[0][0] == "a: 1.5<br>b: 3"


def test_a_contender_comes_at_its_best_of_what_else_was_swept() -> None:
    rows = [{"x": 1, "y": 1, NAME: name, "rate": rate, TARGET: time_s} for name, rate, time_s in
            (("a", 0.1, 9.0), ("a", 0.2, 2.0), ("b", 0.1, 3.0), ("b", 0.2, 30.0))]  # fmt: skip
    cells = sweep_of(rows, ["x", "y", NAME, "rate"]).winner("x", "y", NAME).data[0]
    assert cells.name == "a"
    assert cells.customdata[0][0] == "a with rate 0.2: 2<br>b with rate 0.1: 3"


def test_a_grid_needs_three_different_keys() -> None:
    with pytest.raises(UsageError, match="three different swept keys"):
        grid_of({(1, 1, "a", 0): 1.0, (2, 1, "b", 0): 2.0}).winner("x", "x", NAME)


def test_blocks_are_called_by_their_names_and_settings() -> None:
    assert combination(["algorithm"], ['{"name":"local_sgd","interval":4}']) == "local_sgd (interval 4)"
    assert combination(["algorithm.pull_interval", NAME], [4, "edp"]) == "pull_interval 4, edp"
    assert combination(["topology"], ['{"path":"a/b.yaml"}']) == "b.yaml"


def test_keys_that_change_together_are_one() -> None:
    rows = [{"k": k, "beside": 2 * k, TARGET: float(k)} for k in (1, 2, 3)]
    assert list(traces(sweep_of(rows, ["k", "beside"]).time_to_target("k"))["all"].y) == [1, 2, 3]


def test_of_many_lines_those_that_are_soonest_anywhere_are_drawn_and_the_rest_is_told() -> None:
    """42 lines for 10 colours in 4 strokes: the last is lowest at 1, that before it at 2; the others are above both."""
    heights = {name: (6.0 + name, 6.0 + name) for name in range(40)} | {40: (9.0, 1.0), 41: (1.0, 9.0)}
    rows = [
        {"k": k, "n": name, TARGET: height}
        for name, both in heights.items()
        for k, height in zip((1, 2), both, strict=True)
    ]
    plots = sweep_of(rows, ["k", "n"])
    figure = plots.time_to_target("k")
    assert {"n 40", "n 41"} < traces(figure).keys()
    assert len(traces(figure)) == 40 + 1  # and the crossings
    assert "40 of 42 combinations" in figure.layout.xaxis.title.text
    assert [c.place for c in plots.crossings("k") if c.is_lowest] == [1.5]
    assert "The first 40 of 42 combinations" in plots.against("k", TARGET).layout.xaxis.title.text
    strokes = {(line.line.color, line.line.dash) for line in figure.data if line.mode == "lines+markers"}
    assert len(strokes) == 40
