"""Evaluation during the run: few snapshots, all evaluations, the same bits, errors at the end."""

from __future__ import annotations

import asyncio
import threading
import urllib.request
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families as read_metrics
from simcluster_backends.common.device import DeviceThread
from simcluster_backends.sockets.coordinator.client import Client
from torch import nn

import simcluster
from simcluster.errors import NodeFailed
from simcluster.experiment.measurements import SNAPSHOTS, Evaluations
from simcluster.runs.recorder import Recorder
from simcluster.workloads import Replica
from tests.core.workloads.replicas import normalised, replica_of, some_data
from tests.support.socket_runs import free_port, wait_for

STEPS = 50
NAMES = ("eval_loss", "eval_accuracy", "eval_step")
TOKEN = "0123456789abcdef" * 4


def recorder() -> Recorder:
    return Recorder(0, "a", lambda: 0.0)


def judged(found: Recorder) -> list[tuple[int, str, float]]:
    return [(metric.step, metric.name, metric.value) for metric in found.record.metrics]


def finish(evaluations: Evaluations) -> None:
    asyncio.run(evaluations.finish(1.0))


def trained(replica: Replica, *watched: Evaluations) -> None:
    """Train *replica*, whose *watched* evaluations may take place at each step."""
    for step, batch in enumerate(replica.batches(), start=1):
        replica.apply(replica.loss_and_gradients(batch)[1])
        for evaluations in watched:
            evaluations.note(step)


@pytest.fixture
def alongside() -> Iterator[Callable[[Callable[[], None]], Future[None]]]:
    thread = DeviceThread("evaluations of a")
    yield thread.submit
    assert thread.close(60.0)


def big() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 400), nn.Linear(400, 1000), nn.Linear(1000, 3))  # 1.6 MB


@pytest.mark.parametrize("changes", [False, True])
def test_the_last_step_is_evaluated_again_at_the_end_only_if_weights_changed_since(
    monkeypatch: pytest.MonkeyPatch, changes: bool
) -> None:
    calls: list[int] = []
    plain = Replica.evaluate_weights

    def counted(replica: Replica, *args: Any, **how: Any) -> dict[str, float]:
        calls.append(1)
        return plain(replica, *args, **how)

    monkeypatch.setattr(Replica, "evaluate_weights", counted)
    noted, replica = recorder(), replica_of(normalised, size=1, steps=3, test=some_data())
    evaluations = Evaluations(1, replica, noted)
    trained(replica, evaluations)
    if changes:
        next(replica._model.buffers()).add_(1.0)  # a running mean counts as well
    noted.record.steps = 3
    finish(evaluations)
    assert len(calls) == 3 + changes
    *_, before, after = [value for _, name, value in judged(noted) if name == "eval_loss"]
    assert len(judged(noted)) % 4 == 0  # three evaluations and the end, all recorded
    assert (before == after) is not changes


def test_a_copy_moves_into_the_model_that_evaluates_it() -> None:
    replica = replica_of(big, size=1, steps=1, test=some_data())
    expected = replica.evaluate()
    work = replica.evaluation()
    copy = work.args[0]  # type: ignore[attr-defined]
    assert work() == expected
    assert copy == []
    evaluator = replica._evaluator
    assert evaluator is not None
    assert [parameter.untyped_storage().nbytes() for parameter in evaluator._model.parameters()] == [0] * 6
    assert replica.evaluate() == expected


def test_no_more_than_two_snapshots_are_held_at_a_time(
    alongside: Callable[[Callable[[], None]], Future[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    held: dict[int, object] = {}
    most: list[int] = []
    plain = Replica.snapshot

    def counted(replica: Replica) -> list[torch.Tensor]:
        weights, number = plain(replica), len(most)
        held[number] = weakref.finalize(weights[2], held.pop, number, None)
        most.append(len(held))
        return weights

    monkeypatch.setattr(Replica, "snapshot", counted)
    noted, replica = recorder(), replica_of(big, size=1, steps=STEPS, test=some_data())
    noted.alongside = alongside
    evaluations = Evaluations(1, replica, noted)
    trained(replica, evaluations)
    finish(evaluations)
    assert len(most) == STEPS
    assert max(most) <= SNAPSHOTS == 2
    assert held == {}
    assert len(judged(noted)) == 2 * (STEPS + 1)  # loss and accuracy, of the final weights too


class Late(Future[None]):
    """Work that begins only once it is waited for."""

    def __init__(self, work: Callable[[], None], log: list[str]) -> None:
        super().__init__()
        self._work, self._log = work, log

    def result(self, timeout: float | None = None) -> None:
        self._log.append("evaluated")
        self._work()


def test_a_slow_evaluation_makes_the_run_wait_and_none_is_skipped() -> None:
    log: list[str] = []

    def late(work: Callable[[], None]) -> Future[None]:
        log.append("taken")
        return Late(work, log)

    noted, replica = recorder(), replica_of(size=1, steps=5, test=some_data())
    noted.alongside = late
    evaluations = Evaluations(1, replica, noted)
    trained(replica, evaluations)
    # The third cannot be taken before the first is evaluated.
    assert log == ["taken", "taken", *["evaluated", "taken"] * 3]
    finish(evaluations)
    assert log[-2:] == ["evaluated", "evaluated"]
    assert [step for step, name, _ in judged(noted) if name == "eval_loss"] == [1, 2, 3, 4, 5, 0]


@pytest.mark.parametrize("model", [big, normalised])
def test_weights_and_running_means_are_those_of_their_moment_to_the_bit(
    model: Callable[[], nn.Module], alongside: Callable[[Callable[[], None]], Future[None]]
) -> None:
    at_once, aside = recorder(), recorder()
    aside.alongside = alongside
    replica = replica_of(model, size=1, steps=9, test=some_data())
    both = [Evaluations(2, replica, noted) for noted in (at_once, aside)]
    trained(replica, *both)
    for evaluations in both:
        finish(evaluations)
    assert judged(aside) == judged(at_once)
    # The same by hand.
    again, expected = replica_of(model, size=1, steps=9, test=some_data()), []
    for step, batch in enumerate(again.batches(), start=1):
        again.apply(again.loss_and_gradients(batch)[1])
        expected += [(step, again.evaluate()["loss"])] if step % 2 == 0 else []
    assert [(step, value) for step, name, value in judged(aside) if name == "eval_loss"][:-1] == expected
    assert len({value for _, value in expected}) == 4


def test_an_evaluation_that_draws_nothing_leaves_the_global_generator_to_training(
    alongside: Callable[[Callable[[], None]], Future[None]],
) -> None:
    drawn: list[float] = []

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if threading.current_thread() is not threading.main_thread():
            drawn.append(torch.default_generator.initial_seed())
        return nn.functional.cross_entropy(outputs, targets)

    replica = replica_of(size=1, test=some_data(), loss=loss)
    before = torch.default_generator.initial_seed()
    for _ in range(2):
        alongside(lambda: replica.evaluate() and None).result(60.0)
    assert drawn == [0, before, before]  # tried once, with another seed


WORKLOAD = """
import torch
from torch import nn
from simcluster import Workload
from simcluster.workloads import sgd

def loss(outputs, targets):
    if len(targets) == 20:
        raise ValueError("no loss for twenty")  # the line of the user
    return nn.functional.cross_entropy(outputs, targets)

def make_workload(*, held_out: int = 20) -> Workload:
    inputs = torch.randn(200, 6, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(200) % 3
    return Workload(
        model=lambda: nn.Linear(6, 3), loss=loss, train=(inputs[20:], targets[20:]),
        test=(inputs[:held_out], targets[:held_out]), optimizer=sgd(0.1), batch_size=8,
    )
"""

ALGORITHM = """
import asyncio
from pathlib import Path

async def waits(node, replica, *, until: str = ""):
    for step, batch in enumerate(replica.batches(), start=1):
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        await node.compute(replica.apply, gradients, cost=replica.apply_cost())
        node.record(step=step, loss=loss)
    while until and not Path(until).exists():
        await asyncio.sleep(0.02)
"""


def experiment(folder: Path, **settings: Any) -> dict[str, Any]:
    (folder / "model.py").write_text(WORKLOAD)
    (folder / "waits.py").write_text(ALGORITHM)
    return {
        "topology": {"name": "two", "nodes": {name: {"device": "x86-laptop"} for name in "ab"},
                     "links": [{"between": ["a", "b"], "bandwidth": "1 Gbps", "latency": "1 ms"}]},
        "algorithm": {"path": f"{folder / 'waits.py'}:waits", **settings.pop("algorithm", {})},
        "workload": {"path": f"{folder / 'model.py'}:make_workload", **settings.pop("workload", {})},
        "stop": {"steps": 4},
        "evaluate_every": 1,
        **settings,
    }  # fmt: skip


@pytest.mark.parametrize("backend", ["sim", "sockets"])
def test_a_loss_that_raises_on_held_out_samples_is_reported_with_its_line(backend: str, tmp_path: Path) -> None:
    with pytest.raises(NodeFailed) as found:
        simcluster.run(experiment(tmp_path), backend=backend, out=tmp_path / "run", report=False)
    # On real nodes rank 1 represents the run once rank 0 is lost, and its evaluation raises, too; either may be first.
    assert found.value.rank in ([0] if backend == "sim" else [0, 1])
    assert "model.py" in found.value.details
    assert "# the line of the user" in found.value.details
    run = simcluster.load_run(tmp_path / "run")
    assert run.summary["status"] == "failed"
    assert run.summary["steps"] == 4  # all of them: it is raised at the end


def test_a_run_with_work_that_does_not_end_keeps_the_evaluations_made_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = property(lambda recorder: lambda patience_s: False, lambda recorder, settle: None)
    monkeypatch.setattr(Recorder, "settle", never, raising=False)
    with pytest.raises(NodeFailed):
        simcluster.run(experiment(tmp_path, workload={"held_out": 10}), out=tmp_path / "run", report=False)
    rows = simcluster.load_run(tmp_path / "run").metrics
    assert rows[rows.name == "eval_loss"].step.tolist() == [1, 2, 3, 4]  # without that of the final weights


def test_status_and_metrics_have_the_held_out_values_before_the_run_ends(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text(TOKEN)
    port, ended = free_port(), list[Any]()
    plan = experiment(tmp_path, algorithm={"until": str(tmp_path / "go")}, workload={"held_out": 10})
    options = {"coordinator": f"127.0.0.1:{port}", "token_file": str(token), "heartbeat_s": 0.1}

    def run() -> None:
        ended.append(simcluster.run(plan, backend="sockets", out=tmp_path / "run", report=False, options=options))

    running = threading.Thread(target=run)
    running.start()
    client = Client(f"http://127.0.0.1:{port}", TOKEN)

    def status() -> Any:
        try:
            found = client.get("/status")["run"]
        except Exception:
            return None
        return found if found and found["eval_step"] == 4 else None

    try:
        found = wait_for(status)
        assert found["state"] == "running"
        assert [node["eval_step"] for node in found["nodes"]] == [4, None]
        assert client.get("/history")[-1]["eval_loss"] == found["eval_loss"]
        headers = {"Authorization": f"Bearer {TOKEN}"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=headers)
        with urllib.request.urlopen(request) as answer:
            text = answer.read().decode()
        samples = {sample.name: sample.value for family in read_metrics(text) for sample in family.samples}
        assert [samples[f"simcluster_{name}"] for name in NAMES] == [found[name] for name in NAMES]
    finally:
        (tmp_path / "go").touch()
        running.join()
    rows = ended[0].metrics
    for name in NAMES[:2]:
        assert found[name] == rows[(rows.name == name) & (rows.step == 4)].value.iloc[0]
