"""The answers of the notebooks about training."""

from __future__ import annotations

from typing import Any

from tests.notebooks.answers import of


@of("adding_a_pi")
def a_pi_adds_waiting(sweep: Any, found: Any) -> None:
    table = sweep.table.set_index(["algorithm", "topology"])
    times = table.time_to_target_s["sync_ps"] / table.time_to_target_s["sync_ps", "three Macs"]
    assert 3.3 < times["and a Pi 5"] < 3.5
    assert 3.9 < times["and a Pi 4"] < 4.1
    assert times["and both"] == times["and a Pi 4"]
    assert (table.joules["sync_ps"].iloc[1:] > 2.8 * table.joules["sync_ps", "three Macs"]).all()
    hurried = table.time_to_target_s["edp"] / table.time_to_target_s["edp", "three Macs"]
    assert hurried.iloc[1:].between(1, 2.5, inclusive="neither").all()
    assert found.bottleneck.change.part == "pi4-mini3"


@of("algorithm_for_network")
def each_network_has_its_algorithm(sweep: Any) -> None:
    name = sweep.table.algorithm.str.split().str[0]  # without its settings
    sooner = sweep.table.assign(algorithm=name).sort_values("time_to_target_s")
    first = sooner.groupby(["topology.latency_s", "topology.bandwidth_bps"]).algorithm.first().unstack()
    assert (first[1e7] == "diloco").all()
    assert first.loc[20e-6, 1e10] == "all_reduce_dp"
    assert (first.loc[[1e-3, 0.02], 1e10] == "d_psgd").all()
    sent = sweep.table.groupby(name).bytes_sent.first()
    assert 7.5 < sent["all_reduce_dp"] / sent["diloco"] < 8.5


@of("compression_crossing")
def compression_pays_up_to_a_bandwidth(sweep: Any, crossings: Any) -> None:
    found = {crossing.before.removeprefix("compression "): crossing.place for crossing in crossings}
    assert 4500 < found["top_k"] < 4900
    assert 3000 < found["int8"] < 3300
    assert 400 < found["power_sgd"] < 480
    first = sweep.table.loc[sweep.table.groupby("topology.bandwidth_bps").time_to_target_s.idxmin()]
    first = first.set_index("topology.bandwidth_bps")["algorithm.compression"]
    assert first.to_dict() == {1e7: "top_k", 1e8: "top_k", 1e9: "top_k", 1e10: "none"}


@of("compression_crossing")
def bytes_and_steps_of_each_compressor(sweep: Any) -> None:
    runs = sweep.table.set_index(["topology.bandwidth_bps", "algorithm.compression"])
    slow, fast = runs.loc[1e7], runs.loc[1e10]
    steps = (slow.time_to_target_s / slow.elapsed_s * slow.steps).round()
    assert (steps["none"], steps["int8"], steps["top_k"]) == (10, 10, 18)
    assert 3.9 < slow.bytes_sent["none"] / slow.bytes_sent["int8"] < 4
    assert 12.5 < slow.bytes_sent["none"] / slow.bytes_sent["power_sgd"] < 13.5
    assert 1.9 < fast.elapsed_s["power_sgd"] / fast.elapsed_s["none"] < 2.1


@of("diloco_h")
def eight_steps_are_best(sweep: Any) -> None:
    table = sweep.table.pivot(index="algorithm.interval", columns="topology.latency_s", values="time_to_target_s")
    assert (table.idxmin() == 8).all()
    internet, switch = table[0.02], table[5e-5]
    assert 3.3 < internet[1] / internet[8] < 3.5
    assert internet[4] > internet[8] < internet[16]
    assert switch.loc[:8].max() < 1.2 * switch.min()
    assert switch[16] > 1.5 * switch[8]
    assert table.loc[32].isna().all()
    sent = sweep.table.groupby("algorithm.interval").bytes_sent.first()
    assert all(1.9 < sent[h] / sent[2 * h] < 2.1 for h in (1, 2, 4, 8, 16))


@of("measured_numbers")
def measured_numbers_are_right_to_a_thousandth(elapsed_s: Any) -> None:
    assert elapsed_s["data sheet"] < 0.5 * elapsed_s["truth"]
    assert abs(elapsed_s["measured"] / elapsed_s["truth"] - 1) < 0.001


@of("own_algorithm")
def averaging_once_in_a_while_is_faster_and_real_nodes_agree(sweep: Any, real: Any) -> None:
    table = sweep.table.set_index("algorithm")
    always, sometimes = table.loc["local_sgd(interval=1)"], table.loc["local_sgd(interval=10)"]
    assert sometimes.time_to_target_s < always.time_to_target_s / 2
    assert sometimes.bytes_sent < always.bytes_sent / 9
    assert real.summary["weights_sha256"] == sometimes.weights_sha256


@of("quickstart")
def real_nodes_end_with_the_simulated_weights(real: Any, predicted: Any) -> None:
    assert real.summary["weights_sha256"] == predicted.summary["weights_sha256"]
    assert real.summary["bytes_sent"] == predicted.summary["bytes_sent"]


@of("quickstart")
def edp_is_ten_times_as_soon(healthy: Any, slowed: Any) -> None:
    for sweep in (healthy, slowed):
        time_s = sweep.table.set_index("algorithm").time_to_target_s
        assert 10 * time_s["edp"] < time_s["sync_ps"]


@of("staleness_bandwidth")
def the_best_staleness_grows_with_the_bandwidth(sweep: Any) -> None:
    table = sweep.table.pivot(index="algorithm.staleness", columns="topology.bandwidth_bps", values="time_to_target_s")
    assert table.idxmin().to_dict() == {3e6: 1, 30e6: 2, 1e9: 3}
    assert table.loc[4].isna().all()
    gain = table.loc[0] / table.min()
    assert 1.06 < gain[3e6] < 1.08
    assert 3.5 < gain[1e9] < 3.7


@of("smolcluster_table")
def each_network_has_its_first(table: Any) -> None:
    runs = table.set_index(["topology", "algorithm"])
    times, sent = runs.time_to_target_s.unstack(), runs.bytes_sent.unstack()
    assert times.idxmin(axis=1).to_dict() == {"Wi-Fi": "edp", "gigabit": "edp", "smolcluster": "pipeline"}
    assert (times[["all_reduce_dp", "zero"]].min(axis=1) / times.pipeline).between(2.4, 5.1).all()
    assert (sent.all_reduce_dp / sent.pipeline).between(9.5, 10.5).all()
    accuracy = runs.accuracy.unstack()
    assert (accuracy[["all_reduce_dp", "zero", "pipeline"]].stack().round(2) == 0.92).all()
    assert accuracy.edp.round(2)[["gigabit", "Wi-Fi"]].tolist() == [0.83, 0.55]
    assert accuracy.sync_ps.between(0.845, 0.865).all()


@of("straggler")
def a_straggler_costs_a_barrier_most(sweep: Any) -> None:
    barrier_s, server_s, backup_s, asynchronous_s = sweep.table.time_to_target_s.to_numpy().reshape(4, 3)
    assert 4 < barrier_s[2] / barrier_s[0] < 4.6
    assert server_s[1] == server_s[0]
    assert 1.6 < server_s[2] / server_s[0] < 1.8
    assert backup_s[2] < backup_s[0]
    assert 1.05 < asynchronous_s[2] / asynchronous_s[0] < 1.15
    assert sweep.table.staleness_max.iloc[-1] == 21
    assert 3 < sweep.table.joules[2] / sweep.table.joules[0] < 4


@of("topology_convergence")
def wires_change_when(both: Any) -> None:
    time_s = both.table.set_index(["algorithm", "topology.generator"]).time_to_target_s
    ring, server = time_s["all_reduce_dp"], time_s["sync_ps"]
    assert ring["complete"] == ring["ring"]
    assert 1.4 < ring["chain"] / ring["ring"] < 1.6 < ring["star"] / ring["ring"] < 1.75
    assert server["ring"] / server["complete"] > 3.5
    assert ring.min() / server["complete"] > 2
    assert (both.table.groupby("algorithm").weights_sha256.nunique() == 1).all()


@of("topology_convergence")
def overlays_change_what(gossip: Any) -> None:
    neighbours = gossip.table.set_index("algorithm.overlay")
    assert neighbours.accuracy.is_monotonic_increasing
    assert neighbours.bytes_sent["ring"] < 0.35 * neighbours.bytes_sent["complete"]
    assert neighbours.elapsed_s["ring"] < 0.5 * neighbours.elapsed_s["complete"]
