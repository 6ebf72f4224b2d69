"""A group that loses a rank goes on without it, from the last step of all, as the smaller world would have gone on."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path
from typing import Any

import pytest
import torch

import simcluster
from simcluster.errors import NodeFailed, PeerLost
from simcluster.lab.reports.report_tables import regroups_table
from simcluster.results import Run, load_run
from simcluster.workloads.models.quadratic import quadratic

STEPS = 24
ALGORITHMS: dict[str, dict[str, Any]] = {
    "all_reduce_dp": {},
    "local_sgd": {"interval": 4},
    "diloco": {"interval": 4},
    "streaming_diloco": {"interval": 4, "fragments": 2, "overlap": 0},
    "demo": {},
    "sparta": {},
}
EVERYBODYS = sorted(set(ALGORITHMS) - {"sparta"})
"""Those whose ranks end with the same weights."""

CRASH = {"kind": "crash", "node": "n2", "at": "9 ms"}


def star(size: int) -> dict[str, Any]:
    slow = {"device": "raspberry-pi-4", "bandwidth": "1 Mbps", "latency": "100 us"}
    return {"generator": "star", "workers": size, **slow}


def run(
    folder: Path, algorithm: str, *faults: dict[str, Any], size: int = 3, path: Path | None = None, **keys: Any
) -> Run:
    """One in the simulator; raises what it fails with. The algorithm is one of ours, or in the file at *path*."""
    settings = ALGORITHMS.get(algorithm, {}) | keys.pop("settings", {})
    return simcluster.run(
        {
            "name": "regroup",
            "topology": star(size),
            "algorithm": {"name": algorithm, **settings} if path is None else {"path": f"{path}:{algorithm}"},
            "workload": {"name": "quadratic", "batch_size": 8},
            "stop": {"steps": STEPS},
            "evaluate_every": 4,
            "faults": list(faults),
            **keys,
        },
        out=folder,
        options={"dead_s": 0.02},
        report=False,
    )


def weights_of(found: Run) -> dict[str, str]:
    return {name: node["weights_sha256"] for name, node in found.summary["nodes"].items()}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_rest_goes_on_with_the_bits_of_a_smaller_world_that_resumed_at_the_same_step(
    algorithm: str, tmp_path: Path
) -> None:
    found = run(tmp_path / "lost", algorithm, CRASH)
    (formed,) = found.summary["regroups"]
    assert formed["lost"] == ["n2"]
    assert formed["members"] == ["n0", "n1"]
    assert 0 < formed["step"] < STEPS
    step = formed["step"]
    kept = run(tmp_path / "kept", algorithm, checkpoint={"every": step, "keep": STEPS})
    resumed = simcluster.resume(kept, topology=star(2), step=step, out=tmp_path / "resumed", report=False)
    assert found.summary["weights_sha256"] == resumed.summary["weights_sha256"]
    assert found.summary["loss"] == resumed.summary["loss"]
    assert {name: weights_of(found)[name] for name in ("n0", "n1")} == weights_of(resumed)


def test_sums_under_way_are_dropped_and_the_pipeline_is_filled_again(tmp_path: Path) -> None:
    exact = {"workload": {"name": "quadratic", "batch_size": 8, "dtype": "float64"}}
    found = run(tmp_path / "lost", "all_reduce_dp", CRASH, settings={"staleness": 2}, **exact)
    step = found.summary["regroups"][0]["step"]
    assert step > 0
    workload = quadratic(batch_size=8, dtype="float64")
    alone = workload.replica(0, 1, 0, STEPS)
    for first, last, size in ((0, step, 3), (step, STEPS, 2)):
        streams = [workload.replica(rank, size, 0, STEPS).batches(first) for rank in range(size)]
        under_way: deque[list[torch.Tensor]] = deque()
        for _ in range(first, last):
            (gradients,) = zip(*(alone.loss_and_gradients(next(stream))[1] for stream in streams), strict=True)
            under_way.append([sum(gradients[1:], start=gradients[0]) / size])
            if len(under_way) > 2:
                alone.apply(under_way.popleft())
        while under_way:
            alone.apply(under_way.popleft())
    (weights,) = found.weights().values()
    assert torch.allclose(torch.as_tensor(weights), alone.parameters[0], rtol=1e-12, atol=0)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_fault_that_never_comes_changes_nothing(algorithm: str, tmp_path: Path) -> None:
    never = run(tmp_path / "never", algorithm, {**CRASH, "at": "1000 s"}).summary
    plain = run(tmp_path / "plain", algorithm).summary
    for key in ("trace_sha256", "weights_sha256", "bytes_sent", "messages_sent", "elapsed_s", "samples", "loss"):
        assert never[key] == plain[key], key
    assert "regroups" not in never


LOSSES: dict[str, tuple[list[dict[str, Any]], list[str]]] = {  # what happens, who is left
    "a worker crashes": ([CRASH], ["n0", "n1", "n3"]),
    "rank 0 crashes": ([{**CRASH, "node": "n0"}], ["n1", "n2", "n3"]),
    "two crash at once": ([CRASH, {**CRASH, "node": "n0"}], ["n1", "n3"]),
    "one crashes while the others agree": ([CRASH, {**CRASH, "node": "n0", "at": "9.3 ms"}], ["n1", "n3"]),
    "one hangs": ([{**CRASH, "kind": "hang"}], ["n0", "n1", "n3"]),
    "a cable is cut": ([{"kind": "cut", "link": "n1-sw", "at": "9 ms"}], ["n0", "n2", "n3"]),
    "rank 0's cable is cut": ([{"kind": "cut", "link": "n0-sw", "at": "9 ms"}], ["n0"]),
    "two hear each other no more": (
        [{"kind": "partition", "groups": [["n1"], ["n2"]], "at": "9 ms"}],
        ["n0", "n1", "n3"],
    ),
    "two halves": ([{"kind": "partition", "groups": [["n0", "n1"], ["n2", "n3"]], "at": "9 ms"}], ["n0", "n1"]),
    "one cannot be heard": ([{"kind": "cut", "link": "n2-sw", "towards": "sw", "at": "9 ms"}], ["n0", "n1", "n3"]),
    "rank 0 hears nothing": ([{"kind": "cut", "link": "n0-sw", "towards": "n0", "at": "9 ms"}], ["n0"]),
    "one leaves": ([{**CRASH, "kind": "leave"}], ["n0", "n1", "n3"]),
    "all but one": ([{**CRASH, "node": f"n{i}", "at": f"{7 + i} ms"} for i in range(3)], ["n3"]),
}


@pytest.mark.parametrize("algorithm", ["all_reduce_dp", "local_sgd", "demo"])
@pytest.mark.parametrize("loss", LOSSES)
def test_those_who_are_left_end_with_equal_weights_in_one_group(loss: str, algorithm: str, tmp_path: Path) -> None:
    faults, left = LOSSES[loss]
    summary = (found := run(tmp_path / "run", algorithm, *faults, size=4)).summary
    assert summary["status"] == "done"
    assert sorted(summary["lost"]) == sorted({"n0", "n1", "n2", "n3"} - set(left))
    assert summary["regroups"][-1]["members"] == left
    assert {weights_of(found)[name] for name in left} == {summary["weights_sha256"]}
    assert summary["steps"] == STEPS
    assert summary["loss"] is not None, "somebody else evaluates in place of rank 0"


def test_every_batch_is_used_or_lost_group_by_group(tmp_path: Path) -> None:
    found = run(tmp_path / "run", "all_reduce_dp", CRASH)
    step = found.summary["regroups"][0]["step"]
    # `step` steps of three ranks and the rest of two; the step in which the crash fell is lost, by all three
    used = 8 * (3 * step + 2 * (STEPS - step))
    assert found.summary["samples"]["used"] == used
    assert found.summary["samples"]["lost"] == 8 * 3
    assert found.samples["used"].sum() == used


def test_who_leaves_does_so_at_the_end_of_a_step_which_is_everybodys(tmp_path: Path) -> None:
    found = run(tmp_path / "run", "all_reduce_dp", {**CRASH, "kind": "leave"})
    step = found.summary["regroups"][0]["step"]
    assert found.summary["lost"]["n2"] == f"left at step {step}"
    own = found.samples[found.samples["node"] == "n2"]
    assert (own["used"].sum(), own["lost"].sum()) == (8 * step, 0)


@pytest.mark.parametrize("algorithm", EVERYBODYS)
@pytest.mark.parametrize("node", ["n0", "n2"])
def test_one_that_comes_back_is_let_in_and_ends_with_the_others(algorithm: str, node: str, tmp_path: Path) -> None:
    found = run(tmp_path / "run", algorithm, {"kind": "restart", "node": node, "at": "6 ms", "after": "4 ms"})
    assert "lost" not in found.summary
    assert found.summary["regroups"][-1]["joined"] == [node]
    assert found.summary["regroups"][-1]["members"] == ["n0", "n1", "n2"]
    assert set(weights_of(found).values()) == {found.summary["weights_sha256"]}


def test_one_that_joins_late_is_given_the_state_and_trains_on_its_share(tmp_path: Path) -> None:
    found = run(tmp_path / "run", "all_reduce_dp", {"kind": "join", "node": "n1", "at": "10 ms"})
    (formed,) = found.summary["regroups"]
    assert (formed["joined"], formed["members"]) == (["n1"], ["n0", "n1", "n2"])
    assert set(weights_of(found).values()) == {found.summary["weights_sha256"]}
    samples = found.samples.groupby("node")["used"].sum()
    assert samples["n1"] == 8 * (STEPS - formed["step"])
    assert samples["n0"] == 8 * STEPS


@pytest.mark.slow
def test_a_resumed_run_begins_where_it_was_with_those_who_are_there(tmp_path: Path) -> None:
    kept = run(tmp_path / "kept", "all_reduce_dp", checkpoint={"every": 8})
    late = {"faults": [{"kind": "join", "node": "n2", "at": "10 s"}]}
    found = simcluster.resume(kept, step=16, overrides=late, out=tmp_path / "late", report=False)
    other = run(tmp_path / "two", "all_reduce_dp", checkpoint={"every": 8})
    two = simcluster.resume(other, step=16, topology=star(2), out=tmp_path / "of two", report=False)
    assert found.summary["lost"] == {"n2": "joined too late"}
    assert found.summary["weights_sha256"] == two.summary["weights_sha256"]


@pytest.mark.slow
def test_a_smaller_group_leaves_checkpoints_that_any_number_of_ranks_goes_on_from(tmp_path: Path) -> None:
    found = run(tmp_path / "run", "all_reduce_dp", CRASH, checkpoint={"every": 2, "keep": STEPS})
    formed = found.summary["regroups"][0]["step"]
    sizes = {kept.step: kept.manifest.world_size for kept in found.checkpoints}
    assert {step: sizes[step] for step in sizes if step <= formed} == dict.fromkeys(range(2, formed + 1, 2), 3)
    assert {step: sizes[step] for step in sizes if step > formed} == dict.fromkeys(
        range(formed + 2 - formed % 2, STEPS + 1, 2), 2
    )
    last = max(step for step in sizes if step < STEPS)
    none = {"faults": []}
    resumed = simcluster.resume(found, topology=star(2), step=last, overrides=none, out=tmp_path / "two", report=False)
    assert resumed.summary["weights_sha256"] == found.summary["weights_sha256"]
    again = simcluster.resume(found, step=last, overrides=none, out=tmp_path / "three", report=False)
    assert again.summary["resumed"]["world_size"] == 2


def test_who_stands_for_the_run_writes_its_weights_and_evaluations(tmp_path: Path) -> None:
    found = run(tmp_path / "run", "all_reduce_dp", {**CRASH, "node": "n0"})
    assert found.summary["weights_sha256"] == weights_of(found)["n1"]
    metrics = found.metrics[found.metrics["name"] == "eval_loss"]
    formed = found.summary["regroups"][0]["time_s"]
    assert set(metrics[metrics["time_s"] > formed]["node"]) == {"n1"}
    assert list(found.weights()), "final.safetensors is n1's"


def test_without_regroup_a_loss_is_the_end_of_the_run(tmp_path: Path) -> None:
    with pytest.raises(PeerLost, match=r"rank 2 \(n2\) is lost: crashed by the fault plan"):
        run(tmp_path / "run", "all_reduce_dp", CRASH, regroup=False)
    assert "regroups" not in load_run(tmp_path / "run").summary


@pytest.mark.parametrize("settings", [{"compression": "int8"}, {"compression": {"kind": "top_k", "fraction": 0.5}}])
def test_what_ranks_keep_for_each_other_ends_with_them(settings: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(PeerLost):
        run(tmp_path / "run", "all_reduce_dp", CRASH, settings=settings)


def test_epochs_are_of_samples_whoever_is_left(tmp_path: Path) -> None:
    found = run(tmp_path / "run", "all_reduce_dp", CRASH, stop={"epochs": 0.5})
    half = found.summary["samples"]["used"]
    undisturbed = run(tmp_path / "all", "all_reduce_dp", stop={"epochs": 0.5}).summary["samples"]["used"]
    # a step of three ranks is 24 samples, of two 16: each rounding is of less than a step
    assert abs(half - undisturbed) <= 24 + 16
    assert found.summary["steps"] > 0


def test_without_numbers_the_time_of_a_loss_is_the_same(tmp_path: Path) -> None:
    real = run(tmp_path / "real", "all_reduce_dp", CRASH).summary
    timed = run(tmp_path / "timed", "all_reduce_dp", CRASH, numerics="none").summary
    assert timed["regroups"] == real["regroups"]
    assert timed["elapsed_s"] == real["elapsed_s"]
    assert timed["bytes_sent"] == real["bytes_sent"]


def test_the_report_and_the_trace_tell_of_it(tmp_path: Path) -> None:
    found = run(tmp_path / "run", "all_reduce_dp", CRASH)
    assert "<td class=text>n0, n1</td>" in regroups_table(found)
    events = json.loads((found.folder / "trace.json").read_text())["traceEvents"]
    (instant,) = [event for event in events if event.get("cat") == "regroup"]
    assert instant["ts"] == pytest.approx(found.summary["regroups"][0]["time_s"] * 1e6)


OWN = """
from simcluster import Replica, Transport
from simcluster.algorithms import steps
from simcluster.collectives import flatten, ring_all_reduce, unflatten
from simcluster.regroup import in_step

@in_step
async def own(node: Transport, replica: Replica) -> None:
    async for step, batch in steps(replica):
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        total = await ring_all_reduce(node, flatten(gradients), f"gradients/{step}")
        await node.compute(replica.apply, unflatten(total / node.size, gradients), cost=replica.apply_cost())
        node.record(step=step, loss=loss)
"""
BY_HAND = OWN.replace(
    "async for step, batch in steps(replica)",
    "for step, batch in enumerate(replica.batches(), start=1 + replica.done)",
)
BY_HAND += "        await replica.checkpoint(step)\n"


@pytest.mark.slow
@pytest.mark.parametrize("code", [OWN, BY_HAND], ids=["steps", "by hand"])
def test_ones_own_algorithm_goes_on_if_it_says_that_it_goes_in_step(code: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(code)
    found = run(tmp_path / "run", "own", CRASH, path=tmp_path / "own.py")
    ours = run(tmp_path / "ours", "all_reduce_dp", CRASH)
    assert found.summary["regroups"] == ours.summary["regroups"]
    assert found.summary["weights_sha256"] == ours.summary["weights_sha256"]
    (tmp_path / "own.py").write_text(code.replace("@in_step", ""))
    with pytest.raises(PeerLost):
        run(tmp_path / "fails", "own", CRASH, path=tmp_path / "own.py")


def test_nobody_goes_on_when_a_rank_is_gone_for_its_own_mistake(tmp_path: Path) -> None:
    mistake = "        if node.rank == 2 and step == 5:\n            raise ValueError('mine')\n"
    (tmp_path / "own.py").write_text(OWN.replace("        loss,", mistake + "        loss,"))
    with pytest.raises(NodeFailed, match="ValueError: mine"):
        run(tmp_path / "run", "own", {**CRASH, "at": "1000 s"}, path=tmp_path / "own.py")
    assert load_run(tmp_path / "run").summary["steps"] == 4
