"""The answers of the notebooks about language models that answer."""

from __future__ import annotations

from typing import Any

from tests.notebooks.answers import of


@of("more_devices")
def every_all_reduce_waits(tensor: Any, spent: Any) -> None:
    rate = tensor.set_index(["wait, ms", "devices"])["tokens/s"]
    assert rate[3.0, 2] < 0.75 * rate[3.0, 1]
    assert rate[3.0, 8] < 1.02 * rate[3.0, 1]
    assert 2.2 < rate[1.0, 8] / rate[1.0, 1] < 2.3
    assert 5.1 < rate[0.1, 8] / rate[0.1, 1] < 5.3
    seconds = spent.set_index(["part", "devices"])["seconds"]
    assert (seconds["waiting"].round(2) == 0.38).all()
    assert seconds["bytes"].max() < 0.02
    assert 2 * seconds["reading", "2"] > 0.45


@of("more_devices")
def a_pipeline_is_for_many_requests(pipeline: Any, waits: Any) -> None:
    many = pipeline.set_index(["requests at once", "devices"])["tokens/s"]
    assert many[1].is_monotonic_decreasing
    assert 3.5 < many[8, 4] / many[8, 1] < 3.7
    assert many[8, 8] < many[8, 4]
    assert 4.5 < waits[1]["TTFT, s"] / waits[4]["TTFT, s"] < 5.5


@of("placement_for_load")
def one_request_hardly_tells_placements_apart(planned: Any) -> None:
    rates, times = planned["tokens/s"], planned["TTFT, s"]
    assert rates[1].max() < 1.1 * rates[1].min()
    assert all(0.45 < rates.loc["alone", 8] / rates.loc[kind, 8] < 0.55 for kind in ("pipeline", "replicas"))
    assert 0.55 < times.loc["tensor", 1] / times.loc["alone", 1] < 0.6


@of("placement_for_load")
def replicas_are_best_under_load(loads: Any) -> None:
    found = loads.set_index(["requests/s", "placement"])
    first, token = found["TTFT of 90 %, s"], found["TPOT, s"]
    assert 12 < first[2.0, "alone"] < 14
    assert 6.5 < first[2.0, "pipeline"] < 7.5
    assert 1.9 < first[2.0, "replicas"] < 2.1
    assert 0.68 < token[2.0, "alone"] < 0.74
    assert 0.53 < token[2.0, "pipeline"] < 0.57
    assert token[2.0, "replicas"] < 0.06
    assert token[0.1].max() / token[0.1].min() < 1.05
    assert first[0.1].max() < 2


@of("shelf_for_70b")
def three_pros_are_the_shelf(shelves: Any) -> None:
    first = shelves.groupby("device").first()
    pro, mini, pi = (first.loc[name] for name in ("mac-mini-m4-pro", "mac-mini-m4", "raspberry-pi-5"))
    assert (pro.machines, mini.machines, pi.machines) == (3, 4, 6)
    assert (pro.USD, mini.USD, pi.USD) == (4290, 2520, 840)
    assert 5.5 < pro["tokens/s"] < 5.8
    assert 28 < pro["tokens/s of 8"] < 30
    assert 49 < pro["TTFT, s"] < 52
    assert 4.3 < mini["tokens/s"] < 4.5
    assert 46 < mini["TTFT, s"] < 48
    assert mini["tokens/s of 8"] == 0
    assert 0.2 < pi["tokens/s"] < 0.28
    assert 34 * 60 < pi["TTFT, s"] < 36 * 60
    eight = shelves[(shelves.device == "mac-mini-m4") & (shelves.machines == 8)].iloc[0]
    assert (eight.placement, eight.USD) == ("tensor", 5040)
    assert eight["tokens/s"] < pro["tokens/s"]


@of("shelf_for_70b")
def a_pro_in_place_of_a_pi_gives_eleven_times_the_tokens(gains: Any, plan: Any) -> None:
    assert gains[0][:2] == ("mac-mini-m4-pro", "pi4")
    assert 10.5 < gains[0][3] / plan.rankings[0].best_per_s < 11.5


@of("shelf_for_70b")
def under_load_the_three_are_for_one_user(under_load: Any) -> None:
    assert under_load.good.is_monotonic_increasing
    assert 0.7 < under_load.good.iloc[-1] < 0.8
    assert 0.4 < under_load.good.iloc[2] < 0.6
