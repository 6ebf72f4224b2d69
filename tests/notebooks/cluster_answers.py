"""The answers of the notebooks about own code, clusters, faults and real nodes."""

from __future__ import annotations

from typing import Any

from tests.notebooks.answers import of


@of("own_model")
def two_laptops_are_faster_and_eight_are_slower(sweep: Any) -> None:
    one, two, four, eight = sweep.table.elapsed_s
    assert 1.15 < one / two < 1.25
    assert 0.95 < one / four < 1.1
    assert eight > 1.3 * one
    assert 2.7e-3 < one / 60 < 2.9e-3
    assert sweep.table.accuracy.min() > 0.7


@of("federated")
def unlike_data_need_more_averages(sweep: Any) -> None:
    table = sweep.table.pivot(index="algorithm.interval", columns="workload.alpha", values="time_to_target_s")
    assert table[100].idxmin() == 16
    assert table[0.3].idxmin() == 4
    assert table[0.05].idxmin() == 1
    assert list(table.isna().sum()) == [2, 1, 0]
    sent = sweep.table.groupby("algorithm.interval").bytes_sent.first()
    assert 3.9 < sent[1] / sent[4] < 4.1


@of("what_to_buy")
def a_gigabit_cable_is_the_best_purchase(found: Any, then: Any) -> None:
    assert (found.bottleneck.change.part, found.bottleneck.change.kind) == ("pi5-mini1", "bandwidth")
    gigabit, faster = found.table[found.table.kind == "purchase"].to_dict("records")[:2]
    assert (gigabit["change"], gigabit["price_usd"]) == ("ethernet-1g for pi5-mini1", 30)
    assert -0.73 < gigabit["relative"] < -0.71
    assert (faster["price_usd"], faster["relative"]) == (60, gigabit["relative"])
    assert then.bottleneck.change.part == "pi4-mini3"
    assert -0.16 < then.table[then.table.kind == "purchase"].relative.min() < -0.14


@of("topology_in_python")
def a_ring_is_enough_for_a_ring(sweep: Any) -> None:
    time_s = sweep.table.set_index(["algorithm", "topology"]).time_to_target_s
    assert time_s["all_reduce_dp"].idxmin() == "ring"
    server = time_s["sync_ps"]
    assert 0.6 * server["ring"] < server[["small world", "random regular"]].max() < 0.65 * server["ring"]


@of("verify_algorithm")
def the_verification_finds_the_sum(correct: Any, wrong: Any, sweep: Any) -> None:
    assert correct.ok
    assert [check.name for check in wrong.failed] == ["identity"]
    mean, total = sweep.table.loss
    assert total < mean


@of("faults_and_resume")
def a_fault_costs_little(well: Any, crashed: Any, restarted: Any, hung: Any) -> None:
    assert abs(hung.summary["elapsed_s"] - well.summary["elapsed_s"] - 0.05) < 0.001
    assert crashed.summary["elapsed_s"] < well.summary["elapsed_s"]
    for run in (crashed, restarted, hung):
        assert abs(run.summary["accuracy"] - well.summary["accuracy"]) < 0.01
    assert hung.summary["weights_sha256"] == well.summary["weights_sha256"]


@of("faults_and_resume")
def a_stopped_run_resumes_to_the_same_weights(well: Any, stopped: Any, resumed: Any) -> None:
    assert stopped.summary["weights_sha256"] != well.summary["weights_sha256"]
    assert resumed.summary["weights_sha256"] == well.summary["weights_sha256"]


@of("repair_crew")
def one_person_is_too_few_and_two_are_enough(table: Any) -> None:
    late = table[0.9]
    assert 1.15 < late[1] / late[2] < 1.25
    assert late[2] / late[8] < 1.03


@of("this_machine")
def counts_and_weights_hold_exactly(pairs: Any, here: Any) -> None:
    assert all("mnist_mlp/gradient" in node["profile"] for node in here["nodes"].values())
    for predicted, measured in pairs:
        for key in ("weights_sha256", "bytes_sent", "messages_sent"):
            assert predicted.summary[key] == measured.summary[key]


@of("replay_real_run")
def a_replay_ends_with_the_weights_of_its_run(first: Any, replayed: Any, changed: Any) -> None:
    assert replayed.summary["weights_sha256"] == first.summary["weights_sha256"]
    assert changed.changed_s > changed.unchanged_s
