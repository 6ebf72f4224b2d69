"""summary.json: totals, nodes and links of a run."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcluster.runs.record import NodeRecord, RunRecord
from simcluster.runs.recorder import Recorder
from simcluster.runs.summary import label, link_use, summarize
from simcluster.topology import load
from tests.support.made_up_runs import (
    GRADIENT_BYTES,
    WEIGHTS_BYTES,
    made_up_config,
    made_up_run,
    record_of,
    topology_document,
    two_nodes,
)

TOPOLOGY = load(topology_document())


def pair_record(elapsed_s: float) -> RunRecord:
    """a sends b 1 MB, b sends a 0.5 MB."""
    a, b = NodeRecord(0, "a", sent_to={1: [2, 1_000_000]}), NodeRecord(1, "b", sent_to={0: [1, 500_000]})
    return RunRecord([a, b], elapsed_s, wall_s=0.1)


@pytest.mark.parametrize(
    ("duplex", "busy"),
    [
        ("full", 0.5),  # the busier way: 1 MB of the 2 MB that 1 MB/s carries in 2 s
        ("free", 0.5),
        ("half", 0.75),  # both ways share: 1.5 MB of 2 MB
    ],
)
def test_a_link_is_as_busy_as_its_duplex_mode_says(duplex: str, busy: float) -> None:
    use = link_use(load(two_nodes(duplex)), pair_record(2.0))["a-b"]
    assert use == {"bytes": 1_500_000, "busy_fraction": busy}


def test_a_run_that_took_no_time_used_no_share_of_a_link() -> None:
    assert link_use(load(two_nodes()), pair_record(0.0))["a-b"]["busy_fraction"] == 0.0


def test_bytes_are_counted_on_every_link_of_their_route() -> None:
    """One step: rank 0 swaps weights and gradients with each; mini1-sw0 carries those of both Pis."""
    per_worker = WEIGHTS_BYTES + GRADIENT_BYTES
    use = link_use(TOPOLOGY, made_up_run(steps=1))
    assert {name: link["bytes"] for name, link in use.items()} == {
        "mini1-mini2": 2 * per_worker,  # mini2's, and mini3's that passes through
        "mini2-mini3": per_worker,
        "mini1-sw0": 2 * per_worker,
        "pi5-sw0": per_worker,
        "pi4-sw0": per_worker,
    }


@given(st.dictionaries(st.tuples(st.integers(0, 4), st.integers(0, 4)), st.integers(0, 10**9), max_size=8))
def test_all_links_together_carry_every_byte_once_per_hop(sent: dict[tuple[int, int], int]) -> None:
    nodes = [NodeRecord(rank, name) for rank, name in enumerate(TOPOLOGY.workers)]
    expected = 0
    for (a, b), size_bytes in sent.items():
        if a != b:
            nodes[a].sent_to[b] = [1, size_bytes]
            expected += size_bytes * len(TOPOLOGY.route(TOPOLOGY.workers[a], TOPOLOGY.workers[b]))
    use = link_use(TOPOLOGY, RunRecord(nodes, 1.0, 1.0))
    assert sum(link["bytes"] for link in use.values()) == expected


def test_the_summary_has_every_promised_number_in_its_order() -> None:
    summary = summarize(made_up_config(), TOPOLOGY, made_up_run(), "0.1.0")
    promised = [
        *("name", "backend", "algorithm", "topology", "seed", "status", "elapsed_s", "wall_s", "steps"),
        *("loss", "accuracy", "messages_sent", "bytes_sent", "weights_sha256", "trace_sha256", "version"),
        *("nodes", "links"),
    ]
    assert [key for key in summary if key in promised] == promised
    assert list(summary["nodes"]) == ["mini1", "mini2", "mini3", "pi5", "pi4"]
    assert summary["messages_sent"] == 50 * 4 * 2
    assert summary["bytes_sent"] == 50 * 4 * (WEIGHTS_BYTES + GRADIENT_BYTES)
    assert summary["steps"] == 50
    # A Pi computes for 0.03 s in each of 50 steps of 0.03 + 2 x 0.004 s.
    pi4 = summary["nodes"]["pi4"]
    assert pi4["compute_s"] == pytest.approx(1.5, abs=1e-9)
    assert pi4["wait_s"] == pytest.approx(50 * 0.008, abs=1e-9)
    assert summary["weights_sha256"] == summary["nodes"]["mini1"]["weights_sha256"]


def test_loss_and_accuracy_are_those_of_the_last_evaluation() -> None:
    summary = summarize(made_up_config(), TOPOLOGY, made_up_run(), "0.1.0")
    assert summary["loss"] == 2.3 * math.exp(-50 / 14)
    assert summary["accuracy"] == 1 - 0.9 * math.exp(-50 / 14)


def test_an_evaluation_noted_late_is_not_taken_for_the_last() -> None:
    a, b = Recorder(0, "a", lambda: 0.0), Recorder(1, "b", lambda: 0.0)
    a.metric_at(2.0, 20, "eval_loss", 0.2)
    a.metric_at(1.0, 10, "eval_loss", 0.9)
    assert summarize(made_up_config(), load(two_nodes()), record_of(a, b, elapsed_s=2.0), "1")["loss"] == 0.2


def test_without_an_evaluation_loss_and_accuracy_are_none() -> None:
    summary = summarize(made_up_config(), TOPOLOGY, made_up_run(steps=5), "0.1.0")
    assert summary["loss"] is None
    assert summary["accuracy"] is None


def test_a_failed_run_says_which_error_ended_it() -> None:
    summary = summarize(made_up_config(), TOPOLOGY, made_up_run(fail_at_step=20), "0.1.0")
    assert summary["status"] == "failed"
    assert summary["error"] == {"type": "PeerLost", "message": "rank 4 (pi4) is lost: no heartbeat for 5 s"}
    assert summary["steps"] == 19
    assert summary["weights_sha256"] is None


def test_staleness_is_summed_up_only_where_it_was_recorded() -> None:
    with_it = summarize(made_up_config(), TOPOLOGY, made_up_run(steps=5, staleness=True), "0.1.0")
    # Ranks 0 to 3 see 0..4 once each in five steps (mean 2), rank 4 always 0: (4 x 2 + 0) / 5.
    assert with_it["staleness"] == {"mean": pytest.approx(1.6, abs=1e-12), "max": 4.0}
    assert "staleness" not in summarize(made_up_config(), TOPOLOGY, made_up_run(steps=5), "0.1.0")


def test_a_block_is_called_by_its_name_or_else_by_its_path() -> None:
    assert label({"name": "sync_ps", "path": "x.py:f"}) == "sync_ps"
    assert label({"path": "x.py:f"}) == "x.py:f"
    assert label("sync_ps") == "sync_ps"
