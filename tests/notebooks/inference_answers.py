"""The answers of the notebooks about language models that answer."""

from __future__ import annotations

from typing import Any

from tests.notebooks.answers import of


@of("more_devices")
def every_all_reduce_waits(tensor: Any, spent: Any) -> None:
    rate = tensor.set_index(["wait, ms", "devices"])["tokens/s"]
    assert rate[3.0, 2] < 0.8 * rate[3.0, 1]
    assert rate[3.0, 8] < 1.1 * rate[3.0, 1]
    assert 2.35 < rate[1.0, 8] / rate[1.0, 1] < 2.45
    assert 5.3 < rate[0.1, 8] / rate[0.1, 1] < 5.5
    seconds = spent.set_index(["part", "devices"])["seconds"]
    assert (seconds["waiting"].round(2) == 0.38).all()
    assert seconds["bytes"].max() < 0.02
    assert 0.45 < 2 * seconds["reading", "2"] < 0.55


@of("more_devices")
def a_pipeline_is_for_many_requests(pipeline: Any, waits: Any) -> None:
    many = pipeline.set_index(["requests at once", "devices"])["tokens/s"]
    assert many[1].is_monotonic_decreasing
    assert 3.05 < many[8, 4] / many[8, 1] < 3.15
    assert many[8, 8] < many[8, 4]
    assert 4.5 < waits[1]["TTFT, s"] / waits[4]["TTFT, s"] < 5.5


@of("placement_for_load")
def a_plan_hardly_tells_placements_apart(planned: Any) -> None:
    rates, times = planned["tokens/s"], planned["TTFT, s"]
    assert all(rates[requests].max() < 1.1 * rates[requests].min() for requests in (1, 8))
    assert 0.6 < times.loc["tensor", 1] / times.loc["alone", 1] < 0.7


@of("placement_for_load")
def replicas_are_best_under_load(loads: Any) -> None:
    found = loads.set_index(["requests/s", "placement"])
    first, token = found["TTFT of 90 %, s"], found["TPOT, s"]
    assert 3.25 < first[2.0, "alone"] < 3.35
    assert 1.25 < first[2.0, "pipeline"] < 1.35
    assert 0.65 < first[2.0, "replicas"] < 0.75
    assert 0.19 < token[2.0, "alone"] < 0.21
    assert 0.115 < token[2.0, "pipeline"] < 0.125
    assert token[2.0, "replicas"] < 0.065
    assert token[0.1].max() / token[0.1].min() < 1.05
    assert first[0.1].max() < 2


@of("shelf_for_70b")
def three_pros_are_the_shelf(shelves: Any) -> None:
    first = shelves.groupby("device").first()
    pro, mini, pi = (first.loc[name] for name in ("mac-mini-m4-pro", "mac-mini-m4", "raspberry-pi-5"))
    assert (pro.machines, mini.machines, pi.machines) == (3, 5, 7)
    assert (pro.USD, mini.USD, pi.USD) == (4290, 3150, 980)
    assert 5.05 < pro["tokens/s"] < 5.2
    assert pro["tokens/s of 8"] == 0
    assert 31 < pro["TTFT, s"] < 33
    assert 4.1 < mini["tokens/s"] < 4.3
    assert 47 < mini["TTFT, s"] < 49
    assert 17 < mini["tokens/s of 8"] < 18.5
    assert 2.2 < 1 / pi["tokens/s"] < 2.4
    assert 9.5 * 60 < pi["TTFT, s"] < 10.5 * 60
    four = shelves[(shelves.device == "mac-mini-m4-pro") & (shelves.machines == 4)].iloc[0]
    assert 39 < four["tokens/s of 8"] < 41
    eight = shelves[(shelves.device == "mac-mini-m4") & (shelves.machines == 8)].iloc[0]
    assert (eight.placement, eight.USD) == ("tensor", 5040)
    assert eight["tokens/s"] < pro["tokens/s"]


@of("shelf_for_70b")
def the_model_fits_with_a_pro_in_place_of_a_pi(gains: Any, plan: Any) -> None:
    assert not plan.rankings[0].placements
    assert gains[0][:2] == ("mac-mini-m4-pro", "pi5")
    assert 2.65 < gains[0][3] < 2.8


@of("shelf_for_70b")
def under_load_the_three_are_for_one_user(under_load: Any) -> None:
    assert under_load.good.is_monotonic_increasing
    assert 0.75 < under_load.good.iloc[-1] < 0.85
    assert 0.6 < under_load.good.iloc[2] < 0.72
