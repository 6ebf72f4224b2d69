"""The worlds in experiments/worlds, against closed forms and counts."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from simcluster.documents.user_code import load_function
from simcluster.transport import Transport
from simcluster.worlds import check_world
from tests.support.clusters import star
from tests.support.root import ROOT
from tests.support.world_runs import WorldFunction, now, run_under, works


def shipped(name: str, **settings: Any) -> WorldFunction:
    function, _ = load_function(f"{name}.py:{name}", Path(ROOT, "experiments", "worlds"), "world")
    check_world(function, "world")
    made = partial(function, **settings)
    made.__name__ = name  # type: ignore[attr-defined]
    return made


def waits_until(end_s: float) -> Any:
    async def body(node: Transport) -> float:
        await asyncio.sleep(max(0.0, end_s - now()))
        return now()

    return body


def test_a_power_budget_for_one_of_two_machines_gives_each_every_second_turn() -> None:
    # In 2 s, a machine does 1 s of work at full speed and 0.25 s at a quarter: 10 s of work in 16 s.
    world = shipped("power_budget", budget_W=400.0, full_W=400.0)
    assert run_under([works(10.0), works(10.0)], world).results == pytest.approx([16.0, 16.0], abs=1e-9)


def test_a_batch_queue_preempts_for_as_long_as_its_jobs_last() -> None:
    # Jobs run from 3 to 4, 7 to 8 and 11 to 12 s: 10 s of work end at 13 s.
    done = run_under([works(10.0)], shipped("batch_queue", every_s=3.0, lasts_s=1.0))
    assert done.results == [pytest.approx(13.0, abs=1e-9)]
    assert [row[2] for row in done.happened] == [(3.0, 4.0), (7.0, 8.0), (11.0, 12.0)]


def test_a_wifi_is_slow_by_day() -> None:
    async def sends(node: Transport) -> float:
        await node.send(1, "photos", [torch.zeros(250_000)])
        return now()

    async def receives(node: Transport) -> None:
        await node.recv(0, "photos")

    # 1 MB at 20 B/s: 25,200 s at night carry 504,000 B, and 496,000 B at 10 B/s take 49,600 s, until dusk at 82,800 s.
    topology = star(2, bandwidth_Bps=20.0)
    done = run_under([sends, receives], shipped("wifi_at_night", link="n0-sw", by_day=0.5), topology=topology)
    assert done.results[0] == pytest.approx(25_200 + 49_600, abs=1e-6)


def test_the_nodes_of_a_rack_fail_together_and_racks_apart() -> None:
    world = shipped("rack_failures", racks=[["n0", "n1"], ["n2"]], mean_s=1.0, repair_s=0.25)
    done = run_under([waits_until(40.0)] * 3, world)
    of_node = {name: [row[2] for row in done.happened if row[1] == name] for name in ("n0", "n1", "n2")}
    assert of_node["n0"] == of_node["n1"] != of_node["n2"]
    assert all(end_s is None or end_s - start_s == pytest.approx(0.25) for start_s, end_s in of_node["n0"])
    # One failure in 1.25 s: 32 on average, with a deviation of 0.8 * sqrt(32) = 4.5.
    assert 32 - 3 * 4.5 < len(of_node["n0"]) < 32 + 3 * 4.5


@pytest.mark.parametrize("first", [True, False])
def test_the_racks_of_a_batch_queue_may_fail(first: bool) -> None:
    # Jobs of 0.5 s come 0.5 s after one another, so that racks fail during jobs, and jobs come to racks that are down.
    racks = shipped("rack_failures", racks=[["n0", "n1"]], mean_s=1.0, repair_s=0.75)
    queue = shipped("batch_queue", every_s=0.5, lasts_s=0.5)
    done = run_under([waits_until(40.0)] * 2, *((racks, queue) if first else (queue, racks)))
    kinds = [row[0] for row in done.happened]
    assert min(kinds.count("restart"), kinds.count("hang")) > 20
    # A job holds a node for half of the time until 40 s.
    assert all(40.0 <= result <= 40.5 for result in done.results)


@pytest.mark.parametrize(("crew", "up"), [(1, 0.811), (2, 0.833)])
def test_two_machines_are_fast_as_long_as_the_formula_of_the_repairman_says(crew: int, up: float) -> None:
    # With r = 0.4/2 = 0.2 repairs per failure: one person leaves n machines slow with weights 1, 2 r, 2 r^2, so
    # 0.56/1.48 = 0.378 of two are down; two people leave each machine slow for r/(1 + r) = 0.167 of the time.
    end_s = 400.0
    done = run_under([waits_until(end_s)] * 2, shipped("repair_crew", crew=crew, mean_s=2.0, repair_s=0.4))
    down_s = sum(min(end_s, end_s if end is None else end) - start for _, _, (start, end) in done.happened)
    assert 1 - down_s / (2 * end_s) == pytest.approx(up, abs=0.03)
