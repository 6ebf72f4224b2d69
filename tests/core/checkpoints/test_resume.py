"""A run that was kept goes on as if it had never stopped; on the same ranks or on others, on either backend."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import simcluster
from simcluster.algorithms import ALGORITHMS
from simcluster.algorithms.facts import facts_of
from simcluster.checkpoints.restore import restored
from simcluster.checkpoints.store import checkpoints, latest
from simcluster.errors import CheckpointError
from simcluster.experiment.checkpointing import keeping_of, restart_of
from simcluster.experiment.read.read import read_experiment
from simcluster.experiment.run import resume
from tests.support.kept import MNIST, config, hashes, play, play_on
from tests.support.root import ROOT

EXACT: list[tuple[str, dict[str, Any]]] = [
    ("all_reduce_dp", {}),
    ("all_reduce_dp", {"staleness": 2}),
    ("all_reduce_dp", {"accumulate": 2, "compression": "top_k"}),
    ("all_reduce_dp", {"compression": "terngrad", "bucket_bytes": 1000}),
    ("all_reduce_dp", {"compression": "random_k"}),
    ("choco_sgd", {"compression": "top_k", "gamma": 0.5}),
    ("d_psgd", {"order": "step_then_mix"}),
    ("demo", {}),
    ("diloco", {"interval": 2, "compression": "int8"}),
    ("easgd", {"form": "synchronous", "interval": 2}),
    ("easgd", {"form": "round_robin", "interval": 2}),
    ("gradient_tracking", {}),
    ("k_async", {}),
    ("k_sync", {}),
    ("local_sgd", {"interval": 2, "participation": 0.5}),
    ("local_sgd", {"interval": 2, "participation": 0.5, "proximal": 0.1, "control_variates": True}),
    ("one_bit_adam", {"warmup": 3}),
    ("sgp", {}),
    ("sparta", {"fraction": 0.3}),
    ("ssp", {"staleness": 0}),
    ("streaming_diloco", {"interval": 4, "overlap": 2}),
    ("sync_ps", {"pull_interval": 2, "polyak": 0.5}),
    ("sync_ps", {"server_trains": False}),
    ("sync_ps", {"compression": "top_k"}),
    ("zero", {"stage": 2, "staleness": 2}),
    ("zero", {"stage": 2, "staleness": 1, "compression": "top_k"}),
    ("zero", {"stage": 3, "staleness": 1, "reduce": "direct"}),
]
LOOSE: list[tuple[str, dict[str, Any]]] = [
    ("ad_psgd", {}),
    ("async_diloco", {"interval": 2}),
    ("async_diloco", {"interval": 2, "quorum": 2, "grace_s": 0.01}),
    ("easgd", {"interval": 2, "server_trains": False}),
    ("edp", {"max_staleness": 2}),
    ("edp", {"push": "weights", "pull_interval": 2}),
    ("fedbuff", {"interval": 2, "server_trains": False}),
    ("k_async", {"k": 2}),
    ("k_sync", {"k": 3}),
    ("softsync", {}),
    ("ssp", {"staleness": 2}),
    ("sync_ps", {"wait_for": 3, "cancel_late": True}),
]
SLOW = {"topology.nodes.mini2.straggler": {"kind": "lognormal", "sigma": 0.8}}
"""A straggler that slows a rank by another factor for each piece of work, and is drawn anew when a run is resumed."""


@pytest.mark.parametrize(("algorithm", "settings"), EXACT)
def test_resumed_is_bit_for_bit_never_stopped(algorithm: str, settings: dict[str, Any], tmp_path: Path) -> None:
    assert facts_of(ALGORITHMS[algorithm]).exact(settings)
    whole = play(config(algorithm, **settings), tmp_path, SLOW | {"checkpoint": {"every": 4}})
    rest = play_on(tmp_path, 4)
    assert rest.extra["resumed"]["step"] == 4
    assert hashes(rest) == hashes(whole)
    assert rest.extra["samples"] == whole.extra["samples"]
    # What came before the checkpoint is not done again, and the clock goes on from there.
    again, once = (sum(len(node.spans) for node in record.nodes) for record in (rest, whole))
    assert again < 0.7 * once
    assert rest.began_s > 0
    assert all(metric.time_s >= rest.began_s for node in rest.nodes for metric in node.metrics)


def test_a_centre_that_no_rank_has_met_is_still_with_rank_0_when_the_run_resumes(tmp_path: Path) -> None:
    settings = {"form": "round_robin", "interval": 6}  # the checkpoint at step 4 is before the first meeting
    whole = play(config("easgd", **settings), tmp_path, {"checkpoint": {"every": 4}})
    assert hashes(play_on(tmp_path, 4)) == hashes(whole)


@pytest.mark.parametrize("algorithm", ["pipeline", "tensor_parallel"])
def test_a_model_that_ranks_share_is_put_together_again(algorithm: str, tmp_path: Path) -> None:
    experiment = config(algorithm, steps=4) | {"topology": mesh(2)}
    whole = play(experiment, tmp_path, {"checkpoint": {"every": 2}})
    assert hashes(play_on(tmp_path, 2)) == hashes(whole)
    # Every batch of two ranks of 4 samples was drawn by both, and used once: 4 steps of 8.
    assert whole.extra["samples"] == {"used": 32, "lost": 0, "repeated": 0}


@pytest.mark.parametrize(
    ("algorithm", "backend"), [("pipeline", "sim"), pytest.param("zero", "sockets", marks=pytest.mark.slow)]
)
def test_a_run_resumes_without_the_weights_that_it_began_with(algorithm: str, backend: str, tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"
    model = read_experiment(config("zero")).workload.replica(0, 1, 9, 1)
    safetensors.torch.save_file(dict(zip(model.names, model.snapshot(), strict=True)), file)
    experiment = config(algorithm, {**MNIST, "weights": str(file)}, steps=4) | {"topology": mesh(2)}
    given = {"backend": backend, "overrides": {"checkpoint": {"every": 2}}, "report": False}
    whole = simcluster.run(experiment, out=tmp_path / "run", **given)
    file.unlink()
    rest = simcluster.resume(tmp_path / "run", step=2, out=tmp_path / "rest", report=False)
    for key in ("weights_sha256", "loss", "accuracy"):
        assert rest.summary[key] == whole.summary[key], key
    assert rest.config["workload"] == whole.config["workload"], "it still names the file"


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["sim", "sockets"])
@pytest.mark.parametrize("algorithm", ["pipeline", "tensor_parallel", "zero"])
def test_a_resumed_run_is_evaluated_with_its_final_weights(algorithm: str, backend: str, tmp_path: Path) -> None:
    experiment = config(algorithm, steps=4) | {"topology": mesh(2), "checkpoint": {"every": 2, "keep": 2}}
    whole = simcluster.run(experiment, backend=backend, out=tmp_path / "whole", report=False).summary
    rest = resume(tmp_path / "whole", step=2, out=tmp_path / "rest", report=False).summary
    assert rest["resumed"]["step"] == 2
    for key in ("weights_sha256", "loss", "accuracy"):
        assert rest[key] == whole[key], key


@pytest.mark.parametrize(("algorithm", "settings"), LOOSE)
def test_who_depends_on_arrival_goes_on_to_the_end(algorithm: str, settings: dict[str, Any], tmp_path: Path) -> None:
    assert not facts_of(ALGORITHMS[algorithm]).exact(settings)
    whole = play(config(algorithm, **settings), tmp_path, SLOW | {"checkpoint": {"every": 2, "keep": 9}})
    found = [one for one in checkpoints(tmp_path) if one.step < 8]
    assert {one.manifest.cut for one in found} == {"loose"}
    rest = play_on(tmp_path, found[-1].step)
    # Nobody is thrown back before its own part, and everybody gets to the end.
    parts = {entry.rank: entry.batches for entry in found[-1].manifest.ranks}
    assert any(parts.values())
    for node, before in zip(rest.nodes, whole.nodes, strict=True):
        assert node.steps >= before.steps - 2
    samples = rest.extra["samples"]
    taken = whole.extra["samples"]["used"]
    assert samples["used"] - samples["repeated"] + samples["lost"] >= taken - samples["lost"]


def test_every_algorithm_is_tested_and_said_to_be_one_or_the_other() -> None:
    tested = {name for name, _ in [*EXACT, *LOOSE]} | {"expert_parallel", "pipeline", "tensor_parallel"}
    assert tested == set(ALGORITHMS)


def test_keeping_changes_neither_trace_nor_weights(tmp_path: Path) -> None:
    for algorithm, settings in (("diloco", {"interval": 2}), ("edp", {})):
        plain = play(config(algorithm, **settings), tmp_path)
        kept = play(config(algorithm, **settings), tmp_path, {"checkpoint": {"every": 1, "best": "accuracy"}})
        assert kept.trace_sha256 == plain.trace_sha256
        assert kept.extra["checkpoints"]["written"] > 1


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("four")
    play(config("zero", stage=2), folder, {"checkpoint": {"every": 4}})
    return folder


@pytest.mark.parametrize("size", [2, 6])
def test_what_was_parted_is_parted_anew_and_nothing_of_it_is_lost(four: Path, size: int) -> None:
    found = latest(four, 4)
    before = [found.read(entry.files["algorithm"]) for entry in found.manifest.ranks]
    after = [shard.files["algorithm"] for shard in restored(found, size, by_epochs=False).shards]
    old, new = ([safetensors.torch.load(content) for content in contents] for contents in (before, after))
    assert len(new) == size
    parted = [name for name in old[0] if old[0][name].dim()]  # all but the optimizer's counts of steps
    assert any("exp_avg" in name for name in parted)
    for name in parted:
        whole = torch.cat([part[name] for part in old])
        assert torch.equal(torch.cat([part[name] for part in new]), whole), name
        assert [len(part[name]) for part in new] == [len(part) for part in whole.tensor_split(size)]
    assert all(json.loads(shard.trees) for shard in restored(found, size, by_epochs=False).shards)


def test_the_optimizer_goes_on_with_its_state(four: Path) -> None:
    """All-reduce of two ranks is ZeRO of two: from the checkpoint of four both go on alike."""
    rest = play_on(four, 4, {"topology": mesh(2)})
    assert len(rest.nodes) == 2
    assert rest.extra["resumed"]["world_size"] == 4
    assert len(set(hashes(rest))) == 1
    # Two ranks, 4 samples a step each, the four steps that are left.
    assert rest.extra["samples"] == {"used": 32, "lost": 0, "repeated": 0}


def test_of_a_run_by_epochs_as_many_samples_have_been_used_as_before(tmp_path: Path) -> None:
    experiment = config("all_reduce_dp") | {"stop": {"epochs": 0.01}}  # 4,000 digits: 2.5 steps of 16, rounded up
    play(experiment, tmp_path, {"checkpoint": {"every": 2}})
    rest = play_on(tmp_path, 2, {"topology": mesh(2)})
    assert rest.extra["resumed"]["step"] == 4  # 2 steps of 4 ranks are 4 of 2


@pytest.mark.parametrize(
    ("algorithm", "settings"), [("sgp", {}), ("choco_sgd", {}), ("all_reduce_dp", {"compression": "int8"})]
)
def test_who_cannot_says_why(algorithm: str, settings: dict[str, Any], tmp_path: Path) -> None:
    play(config(algorithm, **settings), tmp_path, {"checkpoint": {"every": 4}})
    with pytest.raises(CheckpointError, match="2 ranks, expected 4, as in the checkpoint, since"):
        play_on(tmp_path, 4, {"topology": mesh(2)})


def mesh(size: int) -> dict[str, Any]:
    device = {"device": "mac-mini-m4", "compute": "auto"}
    return {"generator": "complete", "workers": size, "bandwidth": "10 Gbps", "latency": "10 us", "device": device}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("requests") / "run"
    simcluster.run(config("all_reduce_dp") | {"checkpoint": {"every": 4, "keep": 2}}, out=folder, report=False)
    return folder


def test_another_training_is_another_run(run: Path) -> None:
    with pytest.raises(CheckpointError, match=r'algorithm: found \{"schedule": "naive"\}.*another run'):
        resume(run, step=4, overrides={"algorithm.schedule": "naive"})
    with pytest.raises(CheckpointError, match="seed: found 4, expected 3"):
        resume(run, step=4, overrides={"seed": 4})


def test_a_run_that_is_over_is_not_begun_again(run: Path) -> None:
    with pytest.raises(CheckpointError, match="8 steps, expected more than 8"):
        resume(run)


def test_nothing_there_is_said(run: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no folder"):
        resume(tmp_path / "nothing")
    with pytest.raises(CheckpointError, match="steps: 4, 8, expected a complete checkpoint of step 5"):
        resume(run, step=5)


@pytest.mark.slow
def test_a_longer_run_goes_on_and_its_folder_tells_of_all_of_it(run: Path, tmp_path: Path) -> None:
    longer = resume(run, overrides={"stop.steps": 12}, out=tmp_path / "on", report=False)
    whole = simcluster.run(config("all_reduce_dp", steps=12), out=tmp_path / "whole", report=False)
    assert longer.summary["weights_sha256"] == whole.summary["weights_sha256"]
    assert longer.summary["resumed"]["step"] == 8
    # On the same devices without a straggler the steps take the same time, wherever a run is cut.
    assert longer.summary["elapsed_s"] == pytest.approx(whole.summary["elapsed_s"], rel=1e-9)
    assert [one.step for one in longer.checkpoints] == [12]
    assert longer.samples["used"].sum() == 12 * 4 * 4  # steps, ranks, samples


@pytest.mark.slow
def test_a_damaged_checkpoint_is_passed_over_with_a_warning(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "damaged"
    simcluster.run(config("sparta") | {"checkpoint": {"every": 4, "keep": 2}}, out=folder, report=False)
    last = folder / "checkpoints" / "shards"
    names = [{f.sha256 for r in one.manifest.ranks for f in r.files.values()} for one in checkpoints(folder)]
    torn = last / f"{min(names[1] - names[0])}.safetensors"
    torn.write_bytes(torn.read_bytes()[:-1] + b"\x00")
    with pytest.warns(simcluster.errors.CheckpointWarning, match="step-00000008.json is passed over"):
        assert latest(folder).step == 4
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert resume(folder, report=False).summary["resumed"]["step"] == 4


def test_a_new_run_does_not_replace_what_could_be_resumed(tmp_path: Path) -> None:
    experiment = config("all_reduce_dp") | {"checkpoint": {"every": 4}}
    simcluster.run(experiment, out=tmp_path / "x", report=False)
    (tmp_path / "x" / "summary.json").unlink()  # as if it had been killed before the end
    with pytest.raises(simcluster.UsageError, match="checkpoints of an unfinished run"):
        simcluster.run(experiment, out=tmp_path / "x", report=False)
    assert resume(tmp_path / "x", report=False).summary["resumed"]["step"] == 4


@pytest.mark.slow
def test_killed_runs_leave_complete_checkpoints_on_both_backends_and_go_on_with_the_same_bits() -> None:
    """The short form of `make kill-checkpoints`: two simulations, and one run of real processes behind its middle."""
    command = [sys.executable, "-m", "tools.kill_checkpoints", "--kills", "2", "--sockets", "0", "--steps", "20"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "2 kills, 2 complete checkpoints found" in done.stdout
    assert "1 of 1 resumed runs end with the same bits" in done.stdout
    for backend in ("sim", "sockets"):
        assert f"20 steps on {backend}, killed after step 10 and resumed: the same bits" in done.stdout


def test_faults_count_from_the_start_of_the_whole_run(tmp_path: Path) -> None:
    """A crash that has been is over; a slow spell in which the run was kept goes on for what is left of it."""
    whole = play(config("edp"), tmp_path, {"checkpoint": {"every": 4}})
    began_s = latest(tmp_path, 4).manifest.time_s
    early, late = (f"{time_s * 1e6:.3f} us" for time_s in (began_s / 2, began_s + 1e-4))
    faults = [
        {"kind": "crash", "node": "mini2", "at": early},
        {"kind": "slow", "node": "mini3", "at": early, "for": "1 s", "factor": 2},
        {"kind": "slow", "node": "mini4", "at": late, "for": "1 s", "factor": 2},
    ]
    rest = play_on(tmp_path, 4, {"faults": faults})
    assert all(node.finished_s for node in rest.nodes)
    spells = {row["plan"]["node"]: row["spells_s"][0][0] for row in rest.extra["faults"]}
    assert spells == {"mini3": pytest.approx(began_s), "mini4": pytest.approx(began_s + 1e-4)}
    assert rest.elapsed_s > whole.elapsed_s


def test_a_rank_that_was_lost_is_back_when_the_run_goes_on(tmp_path: Path) -> None:
    """D-PSGD goes on without a neighbour; what it handed in last is what it comes back with."""
    whole = play(config("d_psgd"), tmp_path)
    crash = {"faults": [{"kind": "crash", "node": "mini2", "at": f"{whole.elapsed_s * 0.3 * 1e6:.3f} us"}]}
    play(config("d_psgd"), tmp_path, crash | {"checkpoint": {"every": 2, "keep": 9}})
    found = [one for one in checkpoints(tmp_path) if one.manifest.cut == "filled"]
    assert found
    assert {entry.rank: entry.step for entry in found[0].manifest.ranks}[1] < found[0].step < 8
    rest = play_on(tmp_path, found[0].step)
    assert [node.steps for node in rest.nodes] == [8] * 4


def test_the_page_has_every_algorithm() -> None:
    page = (ROOT / "docs" / "checkpoints.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    for name, algorithm in ALGORITHMS.items():
        (row,) = [row for row in rows if f"`{name}`" in row.split("|")[1]]
        assert ("bit for bit" in row) == facts_of(algorithm).exact({"form": "synchronous", "staleness": 0}), name
        stays = row.split("|")[3].startswith(" no") or "not round-robin" in row
        assert stays == bool(facts_of(algorithm).why_it_stays({"form": "round_robin"})), name


def test_a_backend_that_begins_a_lost_run_again_is_told_where(tmp_path: Path) -> None:
    plan = read_experiment(config("all_reduce_dp") | {"checkpoint": {"every": 4}})
    play(plan.document, tmp_path)
    keeping, _ = keeping_of(plan, tmp_path, None)
    again = restart_of(plan, tmp_path, keeping, "{}")
    assert again() is None  # this attempt has not kept anything yet
    assert keeping.gather is not None
    keeping.gather.written = [4, 8]
    (tmp_path / "checkpoints" / "step-00000008.json").unlink()
    assert again() == ("{}", "the checkpoint of step 4")
    assert keeping.restored is not None
    assert (keeping.restored.step, keeping.gather.written) == (4, [4])
