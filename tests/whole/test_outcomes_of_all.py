"""Every algorithm, every way of losing or gaining a node: what the table of docs/faults.md says comes to pass.

Runs of 16 steps, in the simulator; `make outcomes` does the same with real processes.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.algorithms import ALGORITHMS
from simcluster.algorithms.facts import facts_of
from simcluster.errors import PeerLost, RunError
from simcluster.lab.verify.claims import claim_about
from simcluster.results import load_run
from tests.core.algorithms.counting import counted
from tests.support.levels import sample_of
from tools.outcomes.cases import BOWL, COLUMNS, DEAD, SETTINGS, STEPS, experiment, fault, size_of, table
from tools.outcomes.held import WORDS, wrong, wrong_failure

TABLE = table()
COUNTED = ("sync_ps", "k_sync", "ssp", "softsync", "k_async", "edp")
"""Their servers count the gradients that they applied, each of a batch: what the ledger says must be the same."""


def run(
    algorithm: str, plan: dict[str, Any] | None = None, *, keep_every: int = 0, **options: Any
) -> tuple[dict[str, Any], Exception | None, float]:
    """(summary, error, gradients that a server says it applied) of a run, whether it failed or not."""
    keys = experiment(algorithm, {"steps": STEPS}, keep_every) | ({} if plan is None else {"faults": [plan]})
    error = None
    with tempfile.TemporaryDirectory() as folder:
        try:
            simcluster.run(keys, out=folder, options=options, report=False)
        except RunError as failed:
            error = failed
        found = load_run(Path(folder))
        counts = found.metrics.query("name == 'applied'").value if algorithm in COUNTED else ()
        return found.summary, error, max(counts, default=0)


@cache
def undisturbed(algorithm: str) -> dict[str, Any]:
    return run(algorithm)[0]


def agree(algorithm: str) -> bool:
    """Whether all ranks are claimed to end with the same weights."""
    claim = claim_about(algorithm)
    return claim is not None and bool(claim.replicas_agree)


@pytest.mark.slow
@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_what_the_table_says_comes_to_pass(algorithm: str, column: str) -> None:
    word, whole = TABLE[algorithm][column], undisturbed(algorithm)
    plan, options = fault(column, whole["elapsed_s"]), {"dead_s": DEAD * whole["elapsed_s"]}
    if word == "restored":
        assert not list(wrong_failure(plan, *run(algorithm, plan, **options)[:2]))
        options |= {"max_restarts": 1, "keep_every": 2}
    summary, error, applied = run(algorithm, plan, **options)
    assert not list(wrong(word, plan, summary, error))
    assert summary["steps"] >= STEPS
    exact = facts_of(ALGORITHMS[algorithm]).exact({})
    if exact and (word == "restored" or column == "short hang"):
        assert summary["weights_sha256"] == whole["weights_sha256"]
    # Whoever comes late to k_async has batches left when the others have none.
    if agree(algorithm) and not (algorithm == "k_async" and plan["kind"] in ("restart", "join")):
        ended = {
            node["weights_sha256"] for name, node in summary["nodes"].items() if name not in summary.get("lost", {})
        }
        assert len(ended) == 1
    if algorithm in COUNTED and word != "restored":
        assert summary["samples"]["used"] == BOWL["batch_size"] * applied
    if word == "goes on" and plan["kind"] not in ("restart", "join"):
        assert_all_but_the_lost_ones_are_used(algorithm, summary["samples"])


def assert_all_but_the_lost_ones_are_used(algorithm: str, samples: dict[str, int]) -> None:
    """Nobody else loses anything; of the lost one what it had in its hands is lost, a round at the most."""
    batch, a_round = BOWL["batch_size"], SETTINGS.get(algorithm, {}).get("interval", 1)
    others = (size_of(algorithm) - 1) * STEPS * batch
    assert others < samples["used"] < others + STEPS * batch
    assert samples["lost"] <= a_round * batch
    assert samples["repeated"] == 0


def test_the_table_is_of_all_algorithms_and_columns_in_its_own_words() -> None:
    assert set(TABLE) == set(ALGORITHMS)
    for algorithm, row in TABLE.items():
        assert sorted(row) == sorted(COLUMNS), algorithm
        assert set(row.values()) <= set(WORDS), algorithm


SERVED = (*COUNTED, "easgd", "fedbuff", "async_diloco")
GOSSIP = ("d_psgd", "sgp", "gradient_tracking", "choco_sgd", "ad_psgd")


@cache
def lasts_s(algorithm: str, size: int) -> float:
    return float(counted(experiment(algorithm, {"steps": STEPS}, size=size)).summary["elapsed_s"])


@pytest.mark.slow
@pytest.mark.parametrize("size", sample_of([2, 3, 5]))
@pytest.mark.parametrize("algorithm", [*SERVED, *GOSSIP])
def test_the_table_holds_with_any_number_of_nodes(algorithm: str, size: int) -> None:
    """With two nodes every fault is one of the only worker, neighbour or partner."""
    columns = ("restart", "late join", *(("crash", "leave") if size == 2 else ()))
    columns += ("crash of rank 0",) if size == 2 and algorithm in GOSSIP else ()
    for column in columns:
        plan = fault(column, lasts_s(algorithm, size))
        plan["node"] = f"n{min(int(plan['node'][1:]), size - 1)}"
        found = counted(experiment(algorithm, {"steps": STEPS}, size=size) | {"faults": [plan]})
        assert not list(wrong(TABLE[algorithm][column], plan, found.summary, found.error)), column
        assert not list(found.wrong()), column


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["restart", "join"])
@pytest.mark.parametrize("algorithm", SERVED)
def test_a_server_trains_through_a_moment_without_any_worker(algorithm: str, kind: str) -> None:
    whole_s = lasts_s(algorithm, 3)
    after = {"after": f"{0.1 * whole_s:.9f} s"} if kind == "restart" else {}
    for at_s in (0.0, 0.3 * whole_s):
        plan = [{"kind": kind, "node": name, "at": f"{at_s:.9f} s", **after} for name in ("n1", "n2")]
        found = counted(experiment(algorithm, {"steps": STEPS}, size=3) | {"faults": plan})
        assert found.error is None
        assert "lost" not in found.summary
        assert not list(found.wrong())


@pytest.mark.parametrize("algorithm", SERVED)
def test_a_server_that_only_serves_ends_in_a_typed_way_if_no_worker_ever_comes_back(algorithm: str) -> None:
    keys = experiment(algorithm, {"steps": STEPS}, size=3)
    keys["algorithm"]["server_trains"] = False
    at = f"{0.3 * lasts_s(algorithm, 3):.9f} s"
    found = counted(keys | {"faults": [{"kind": "crash", "node": name, "at": at} for name in ("n1", "n2")]})
    assert found.error is None or isinstance(found.error, PeerLost)
    assert not list(found.wrong())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["crash", "restart"])
@pytest.mark.parametrize("algorithm", ["softsync", "easgd", "fedbuff", "async_diloco"])
def test_a_server_lost_after_its_workers_ended_is_lost_and_a_worker_stands_for_the_run(
    algorithm: str, kind: str
) -> None:
    keys = experiment(algorithm, {"steps": STEPS}, size=3)
    keys["topology"]["nodes"]["n0"] = {"flops": "1 GFLOP/s", "work_overhead": "10 ms"}
    whole = counted(keys).summary
    ends_s = [node["finished_s"] for node in whole["nodes"].values()]
    at_s = (ends_s[0] + max(ends_s[1:])) / 2
    assert max(ends_s[1:]) < at_s < ends_s[0]
    plan = {"kind": kind, "node": "n0", "at": f"{at_s} s"} | ({"after": "1 ms"} if kind == "restart" else {})
    found = counted(keys | {"faults": [plan]})
    assert found.error is None
    assert list(found.summary["lost"]) == ["n0"]
    assert found.summary["elapsed_s"] < ends_s[0], "it does not train on alone"
    assert found.summary["weights_sha256"] == found.summary["nodes"]["n1"]["weights_sha256"]
    assert not list(found.wrong())


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", GOSSIP)
def test_a_dead_rank_0_does_not_stand_for_the_run(algorithm: str) -> None:
    keys = experiment(algorithm, {"steps": STEPS})
    with tempfile.TemporaryDirectory() as folder:
        plan = [{"kind": "crash", "node": "n0", "at": "1 ms"}]
        found = simcluster.run(keys | {"faults": plan}, out=folder, report=False)
        summary, metrics = found.summary, found.metrics
        assert (Path(folder) / "checkpoints" / "final.safetensors").is_file()
    assert summary["weights_sha256"] == summary["nodes"]["n1"]["weights_sha256"]
    assert summary["loss"] < 0.2 * undisturbed_first_loss(algorithm)
    assert set(metrics[metrics.name == "eval_loss"].node) == {"n1"}


@cache
def undisturbed_first_loss(algorithm: str) -> float:
    """Held-out loss after one step, which is about that of a rank that dies after a millisecond."""
    keys = experiment(algorithm, {"steps": 1})
    with tempfile.TemporaryDirectory() as folder:
        return float(simcluster.run(keys, out=folder, report=False).summary["loss"])
