"""The figures of runs: the right numbers at the right places, within limits that keep them light."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcluster.errors import UsageError
from simcluster.lab.reports import timeline
from simcluster.lab.reports.plots import convergence
from simcluster.lab.reports.scales import size_scale, time_scale
from simcluster.lab.reports.sections.activity import windows_of
from simcluster.lab.reports.x_axis import bytes_sent
from simcluster.results import Run
from simcluster.runs.record import NodeRecord, RunRecord, Span
from simcluster.runs.recorder import Recorder
from simcluster.runs.write import write_run
from simcluster.topology import Topology, load
from tests.support.made_up_runs import (
    GRADIENT_BYTES,
    WEIGHTS_BYTES,
    made_up_config,
    made_up_run,
    record_of,
    star_document,
    topology_document,
    two_nodes,
)

PER_STEP_BYTES = 4 * (WEIGHTS_BYTES + GRADIENT_BYTES)
STEP_S = 0.03 + 2 * 0.004


def write(folder: Path, record: RunRecord, topology: Topology | None = None, **config: Any) -> Run:
    topology = topology or load(topology_document())
    return Run(write_run(folder, made_up_config(**config), topology, record, "0.1.0"))


def write_on(document: dict[str, Any], folder: Path, record: RunRecord) -> Run:
    return Run(write_run(folder, made_up_config(topology=document), load(document), record, "0.1.0"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return write(tmp_path_factory.mktemp("run"), made_up_run(staleness=True))


def line(figure: Any, name: str) -> tuple[list[float], list[float]]:
    (trace,) = (trace for trace in figure.data if trace.name == name)
    return list(trace.x), list(trace.y)


@pytest.mark.parametrize(
    ("x", "per_step"),
    [
        ("time", STEP_S),  # 1.9 s in all, so the axis is in seconds
        ("step", 1),
        ("bytes", PER_STEP_BYTES / 1e6),  # 80 MB in all, so the axis is in MB
    ],
)
def test_evaluations_stand_where_their_step_ended(run: Run, x: Any, per_step: float) -> None:
    """Evaluations follow steps 10, 20, ... 50; a step ends with the last byte of its last message."""
    figure = run.plot.convergence(x)
    for name in ("evaluated at rank 0", "accuracy of rank 0"):
        assert line(figure, name)[0] == pytest.approx([per_step * step for step in (10, 20, 30, 40, 50)], abs=1e-9)
    evaluated = run.metrics[run.metrics["name"] == "eval_loss"]["value"]
    assert line(figure, "evaluated at rank 0")[1] == list(evaluated)


def test_bytes_count_once_their_send_has_ended(run: Run) -> None:
    """Step 1: four sends of weights end at 4 ms; gradients of two workers, after 10 ms of work, at 18 ms."""
    sent = bytes_sent(run)(np.array([0.0, 0.0039, 0.004, 0.018, STEP_S]))
    weights, fast = 4 * WEIGHTS_BYTES, 2 * GRADIENT_BYTES
    assert list(sent) == [0, 0, weights, weights + fast, PER_STEP_BYTES]


def test_every_node_has_its_training_loss_behind_the_evaluation(run: Run) -> None:
    figure = run.plot.convergence("step", ["loss"])
    training = [trace for trace in figure.data if trace.name == "training, each node"]
    assert [trace.meta for trace in training] == load(topology_document()).workers
    assert sum(bool(trace.showlegend) for trace in training) == 1


def test_without_evaluations_the_mean_training_loss_is_drawn(tmp_path: Path) -> None:
    run = write(tmp_path, made_up_run(steps=3))
    figure = run.plot.convergence("step")
    losses = run.metrics[run.metrics["name"] == "loss"]
    expected = [losses[losses["step"] == step]["value"].mean() for step in (1, 2, 3)]
    assert line(figure, "training, mean")[1] == pytest.approx(expected, abs=1e-12)


def test_several_runs_are_one_line_each_called_by_what_tells_them_apart(run: Run, tmp_path: Path) -> None:
    other = write(tmp_path, made_up_run(stretch=2.0), seed=8)
    figure = convergence([run, other], "time", ["loss"])
    assert [trace.name for trace in figure.data] == [run.label, other.label]
    assert list(figure.data[1].x) == pytest.approx(2 * np.array(figure.data[0].x))


def test_an_unknown_axis_is_a_usage_error(run: Run) -> None:
    with pytest.raises(UsageError, match="time, step, bytes or energy"):
        run.plot.convergence("minutes")  # type: ignore[arg-type]


def test_a_run_that_recorded_neither_loss_nor_accuracy_says_what_it_did_record(tmp_path: Path) -> None:
    a, b = Recorder(0, "a", lambda: 1.0), Recorder(1, "b", lambda: 1.0)
    a.metrics(1, {"consensus": 0.5})
    run = write(tmp_path, record_of(a, b, elapsed_s=1.0), load(two_nodes()))
    with pytest.raises(UsageError, match="found consensus"):
        run.plot.convergence()
    with pytest.raises(UsageError, match="staleness"):
        run.plot.staleness()


def test_a_long_line_is_thinned_and_keeps_its_end(tmp_path: Path) -> None:
    a, b = Recorder(0, "a", lambda: 1.0), Recorder(1, "b", lambda: 1.0)
    for step in range(20_000):
        a.metric_at(step / 20_000, step, "eval_loss", 1.0)
    figure = write(tmp_path, record_of(a, b, elapsed_s=1.0), load(two_nodes())).plot.convergence("step")
    x, _ = line(figure, "evaluated at rank 0")
    assert len(x) <= 1502
    assert x[-1] == 19_999


def test_the_timeline_shows_the_first_ten_steps_span_by_span(run: Run) -> None:
    """Ten steps of 38 ms with 5 computations, 8 sends and 8 recvs each; step 11 starts at 380 ms."""
    figure = run.plot.timeline()
    assert figure.layout.xaxis.range == pytest.approx((0, 380))
    assert sum(len(trace.x) for trace in figure.data) == 10 * (5 + 8 + 8)
    assert "the first 380 ms of 1.90 s, 210 spans" in figure.layout.xaxis.title.text


def test_a_limit_on_bars_cuts_the_timeline_in_time_and_says_where(run: Run) -> None:
    figure = run.plot.timeline(max_bars=50)
    assert 20 <= sum(len(trace.x) for trace in figure.data) <= 50
    assert figure.layout.xaxis.range[1] < 380
    assert "the first" in figure.layout.xaxis.title.text


def test_a_window_shows_what_touches_it_and_nothing_else(run: Run) -> None:
    figure = run.plot.timeline(start_s=1.0, end_s=1.1)
    for trace in figure.data:
        assert all(base < 1.1 and base + length > 1.0 for base, length in zip(trace.base, trace.x, strict=True))
    assert "1.00 s to 1.10 s of 1.90 s" in figure.layout.xaxis.title.text


def test_windows_are_the_beginning_the_middle_the_end_and_the_whole(run: Run) -> None:
    """50 steps of 38 ms, 1.9 s: windows of ten steps begin at (1.9 - 0.38) / 2 and at 1.9 - 0.38."""
    assert windows_of(run) == {
        "first steps": pytest.approx((0, 0.38)),
        "middle": pytest.approx((0.76, 0.38)),
        "last steps": pytest.approx((1.52, 0.38)),
        "whole run": pytest.approx((0, 1.9)),
    }


@pytest.mark.slow
def test_a_cluster_of_300_nodes_stays_light(tmp_path: Path) -> None:
    """A star of 300; the figures together must not outweigh the page they stand in."""
    names = [f"n{index}" for index in range(300)]
    document = star_document(300)
    run = write(tmp_path, made_up_run(steps=10, names=names), load(document))
    timeline_figure = run.plot.timeline()
    assert "the first 40 of 300 nodes" in timeline_figure.layout.xaxis.title.text
    assert len(run.plot.links().data[0].y) == 40
    figures = [timeline_figure, run.plot.busy(), run.plot.links(), run.plot.convergence()]
    assert sum(len(figure.to_json()) for figure in figures) < 2_000_000


def test_busy_shares_are_the_part_of_each_interval_that_was_worked() -> None:
    """Work from 0.5 to 1.5 and from 1.75 to 2: half of the first second, three quarters of the second."""
    spans = [
        Span("compute", 1.75, 2.0, -1, "", 0),
        Span("compute", 0.5, 1.5, -1, "", 0),
        Span("send", 0, 3, 1, "", 8),
    ]
    assert list(timeline.busy_shares(spans, np.array([0.0, 1.0, 2.0, 3.0]))) == [0.5, 0.75, 0.0]


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=20), st.integers(1, 50))
def test_no_work_is_lost_or_invented_by_the_intervals(gaps: list[tuple[float, float]], bins: int) -> None:
    spans, at_s = [], 0.0
    for idle_s, work_s in gaps:
        spans.append(Span("compute", at_s + idle_s, at_s + idle_s + work_s, -1, "", 0))
        at_s += idle_s + work_s
    edges_s = np.linspace(0.0, max(at_s, 1e-3), bins + 1)
    shares = timeline.busy_shares(spans, edges_s)
    assert float(np.sum(shares * np.diff(edges_s))) == pytest.approx(sum(work for _, work in gaps), abs=1e-9)


@pytest.mark.parametrize(
    ("busy", "top"), [(0.0, 100.0), (0.004, 1.0), (0.03, 5.0), (0.2, 20.0), (0.21, 50.0), (0.9, 100.0)]
)
def test_the_colours_of_the_busy_map_reach_up_to_the_busiest_part(busy: float, top: float) -> None:
    activity = timeline.ActivitySpans(["a"], [(0, Span("compute", 0.0, busy, -1, "", 0))], 1.0)
    assert timeline.busy(activity, bins=1).data[0].zmax == top


def test_links_are_drawn_with_their_busy_share(run: Run) -> None:
    (bars,) = run.plot.links().data
    expected = {name: link["busy_fraction"] * 100 for name, link in run.summary["links"].items()}
    assert dict(zip(bars.y, bars.x, strict=True)) == pytest.approx(expected, abs=1e-3)


def test_energy_grows_by_what_devices_draw(tmp_path: Path) -> None:
    """Two Pis that draw 3 W at rest and 7 W at work. a works from 0 to 1 s, b never; the run lasts 2 s.

    After 0.5 s: 0.5 x (7 + 3) = 5 J; after 2 s 10 + 6 = 16 J.
    """
    document = two_nodes()
    document["nodes"] = {
        name: {"flops": "1 GFLOP/s", "power_idle": "3 W", "power_busy": "7 W"} for name in document["nodes"]
    }
    a, b = Recorder(0, "a", lambda: 2.0), Recorder(1, "b", lambda: 2.0)
    a.span("compute", 0.0, 1.0, -1, "", 0)
    for time_s in (0.5, 2.0):
        a.metric_at(time_s, int(2 * time_s), "eval_loss", 1.0)
    run = write_on(document, tmp_path, record_of(a, b, elapsed_s=2.0))
    figure = run.plot.convergence("energy")
    assert line(figure, "evaluated at rank 0")[0] == pytest.approx([5.0, 16.0])
    assert figure.layout.xaxis.title.text == "energy (J)"


def test_the_energy_axis_ends_with_the_bill(run: Run) -> None:
    assert line(run.plot.convergence("energy"), "evaluated at rank 0")[0][-1] == pytest.approx(run.summary["joules"])


def test_a_device_that_does_not_say_what_it_draws_is_named(tmp_path: Path) -> None:
    document = two_nodes()
    document["nodes"]["b"] = {"flops": "1 GFLOP/s"}
    a, b = Recorder(0, "a", lambda: 1.0), Recorder(1, "b", lambda: 1.0)
    a.metrics(1, {"loss": 1.0})
    run = write_on(document, tmp_path, record_of(a, b, elapsed_s=1.0))
    with pytest.raises(UsageError, match=r"topology\.nodes\.b\.device: .*power_idle"):
        run.plot.convergence("energy")


def test_links_on_the_topology_have_the_colour_of_their_busy_share(run: Run) -> None:
    """The last Pi hangs on 100 Mbps, half duplex: (200,100 + 200,060) B x 50 / (12.5 MB/s x 1.9 s) is 84 %."""
    figure = run.plot.topology()
    lines = {trace.name: trace for trace in figure.data if trace.mode == "lines"}
    assert list(lines) == ["under 5 %", "5 to 25 %", "over 80 % busy"]
    pi4, sw0 = ((x, y) for trace in figure.data for x, y, name in zip(trace.x, trace.y, trace.text or (), strict=False)
                if name in ("pi4", "sw0"))  # fmt: skip
    busiest = lines["over 80 % busy"]
    assert {(busiest.x[0], busiest.y[0]), (busiest.x[1], busiest.y[1])} == {pi4, sw0}
    (middles,) = (trace for trace in figure.data if trace.marker.size == 16)
    assert "pi4-sw0: busy 84 %, 20.0 MB<br>100 Mbps, 200 us, half" in middles.hovertext


def test_a_chain_is_drawn_as_a_straight_line(tmp_path: Path) -> None:
    """The layout leaves 1e-16 between heights, which would fill the figure if it were the whole range."""
    chain = load("smolcluster")
    run = write_on(dict(chain.document), tmp_path, made_up_run(2))
    figure = run.plot.topology()
    low, high = sorted(figure.layout.yaxis.range)
    assert high - low > 0.1
    assert set(figure.data[-1].y) == {0.0}


def test_the_consensus_distance_is_the_mean_of_the_nodes_own(tmp_path: Path) -> None:
    a, b = Recorder(0, "a", lambda: 1.0), Recorder(1, "b", lambda: 2.0)
    a.metrics(5, {"consensus": 1.0})
    b.metrics(5, {"consensus": 4.0})
    figure = write(tmp_path, record_of(a, b, elapsed_s=2.0), load(two_nodes())).plot.consensus()
    # The step is everybody's when the last has made it, after 2 s.
    assert line(figure, "mean of all nodes") == ([2.0], [2.5])
    assert figure.layout.yaxis.type == "log"


def test_a_run_that_knows_no_consensus_says_how_to_have_it(run: Run) -> None:
    with pytest.raises(UsageError, match="evaluate_consensus"):
        run.plot.consensus()


def test_staleness_is_counted_by_node(run: Run) -> None:
    """Over 50 steps rank r notes (step x (r + 1)) mod 5: each of 0..4 ten times, but rank 4 always 0."""
    bars = {trace.name: dict(zip(trace.x, trace.y, strict=True)) for trace in run.plot.staleness().data}
    assert bars["mini2"] == {0: 10, 1: 10, 2: 10, 3: 10, 4: 10}
    assert bars["pi4"] == {0: 50, 1: 0, 2: 0, 3: 0, 4: 0}


def test_names_that_look_like_markup_are_drawn_as_text(tmp_path: Path) -> None:
    node = NodeRecord(0, "<b>a</b>", spans=[Span("compute", 0.0, 1.0, -1, "<i>", 0)])
    activity = timeline.ActivitySpans(["&lt;b&gt;a&lt;/b&gt;"], [(0, node.spans[0])], 1.0)
    assert "<i>" not in timeline.gantt(activity, 0.0, 1.0, 10).data[0].hovertext[0]


@pytest.mark.parametrize(
    ("longest_s", "unit"), [(5e-4, "us"), (0.5, "ms"), (599.0, "s"), (3600.0, "min"), (86_400.0, "h")]
)
def test_time_axes_take_the_unit_of_the_whole_run(longest_s: float, unit: str) -> None:
    assert time_scale(longest_s)[1] == unit


def test_byte_axes_take_the_unit_of_the_whole_run() -> None:
    assert [size_scale(size) for size in (0, 2e3, 80e6, 3e9)] == [
        (1, "B"),
        (1e3, "kB"),
        (1e6, "MB"),
        (1e9, "GB"),
    ]
