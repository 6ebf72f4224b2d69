"""Mistakes that end as "done" are named: on the terminal, in summary.json, in the report and by `compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.algorithms import ALGORITHMS
from simcluster.results import Run
from simcluster.topology import star
from tests.support.levels import sample_of
from tests.support.root import ROOT

LOOP = "    for step, batch in enumerate(replica.batches(), start=1):\n"
COST = "cost=replica.gradient_cost(batch)"
WORK = f"        loss, gradients = await node.compute(replica.loss_and_gradients, batch, {COST})\n"
APPLY = "        await node.compute(replica.apply, gradients, cost=replica.apply_cost())\n"
RECORD = "        node.record(step=step, loss=loss)\n"
BEGIN = "async def algo(node, replica):\n"

MISTAKES: dict[str, tuple[str, str, str, int]] = {
    # the code, the kind of its warning, a part of its text, the line that it names (0: none)
    "gradients outside compute": (
        BEGIN + LOOP + "        loss, gradients = replica.loss_and_gradients(batch)\n" + APPLY + RECORD,
        "outside_compute",
        "await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))",
        3,
    ),
    "a step outside compute": (
        BEGIN + LOOP + WORK + "        replica.apply(gradients)\n" + RECORD,
        "outside_compute",
        "await node.compute(replica.apply, gradients, cost=replica.apply_cost())",
        4,
    ),
    "weights changed by hand": (
        BEGIN + LOOP + "        for p in replica.parameters:\n"
        "            p.mul_(0.9)\n        node.record(step=step)\n",
        "in_place",
        "changes weights in place outside node.compute, 8 times",
        4,
    ),
    "a step in place": (
        BEGIN + "    total = 0\n" + LOOP + WORK + "        total += 1\n"
        "        for p, g in zip(replica.parameters, gradients):\n            p -= 0.1 * g\n" + RECORD,
        "in_place",
        "changes weights in place outside node.compute, 8 times",
        7,
    ),
    "a step in place of the data": (
        BEGIN + LOOP + WORK + "        for p, g in zip(replica.parameters, gradients):\n"
        "            p.data.add_(g, alpha=-0.1)\n" + RECORD,
        "in_place",
        "such work takes no virtual time",
        5,
    ),
    "a step in place before an all-reduce of the library": (
        "from simcluster.collectives import flatten, ring_all_reduce, unflatten\n\n\n"
        "async def mean(node, replica, step):\n"
        "    total = await ring_all_reduce(node, flatten(replica.parameters), f'mean/{step}')\n"
        "    replica.load(unflatten(total / node.size, replica.parameters))\n\n\n" + BEGIN + LOOP + WORK
        + "        for p, g in zip(replica.parameters, gradients):\n            p -= 0.1 * g\n"
        "        await mean(node, replica, step)\n" + RECORD,
        "in_place",
        "changes weights in place outside node.compute, 8 times",
        13,
    ),
    "an optimizer of one's own": (
        "import torch\n\n\n" + BEGIN + "    sgd = torch.optim.SGD(replica.parameters, lr=0.1)\n" + LOOP + WORK
        + "        for p, g in zip(replica.parameters, gradients):\n            p.grad = g\n"
        "        sgd.step()\n" + RECORD,
        "in_place",
        "changes weights in place outside node.compute",
        10,
    ),
    "work that is only called": (
        BEGIN + LOOP + "        await node.compute(sum, [1.0], cost=replica.apply_cost())\n"
        "        replica.load([p * 0.9 for p in replica.parameters])\n"
        "        await node.send(1 - node.rank, f'weights/{step}', replica.parameters)\n"
        "        node.record(step=step)\n",
        "unread",
        "sends 8 messages with the tag 'weights/#' (# is a number), and no node ever receives one",
        5,
    ),
    "a send without await": (
        BEGIN + LOOP + WORK + APPLY + "        node.rank == 1 and [node.send(0, 'x', gradients)]\n" + RECORD,
        "not_awaited",
        "node.send without await, 4 times",  # one of two ranks, four steps: one warning
        5,
    ),
    "an own coroutine without await": (
        "async def pause():\n    pass\n\n\n" + BEGIN + LOOP + WORK + APPLY + "        pause()\n" + RECORD,
        "not_awaited",
        "pause without await, 8 times",
        9,
    ),
    "a list that all ranks fill": (
        "SEEN = []\n\n\n" + BEGIN + LOOP + WORK + "        SEEN.append(loss)\n"
        "        gradients = [g / len(SEEN) for g in gradients]\n" + APPLY + RECORD,
        "shared_state",
        "(SEEN)",
        1,
    ),
    "a global counter": (
        "import torch\n\nCOUNT = 0\n\n\n" + BEGIN + "    global COUNT\n" + LOOP + WORK + "        COUNT += 1\n"
        "        gradients = [g / COUNT for g in gradients]\n" + APPLY + RECORD,
        "shared_state",
        "(COUNT)",
        3,
    ),
    "an attribute of a class": (
        "class State:\n    last = 1.0\n\n\n" + BEGIN + LOOP + WORK
        + "        gradients = [g * State.last for g in gradients]\n"
        "        State.last = loss / (1 + node.rank)\n" + APPLY + RECORD,
        "shared_state",
        "(State)",
        1,
    ),
    "nothing": (BEGIN + "    pass\n", "no_step", "without a step", 0),
    "no step of the optimizer": (BEGIN + LOOP + WORK + RECORD, "untrained", "no weight has changed", 0),
}  # fmt: skip


def run(folder: Path, code: str, **keys: Any) -> Run:
    file = folder / "algo.py"
    file.write_text(code)
    given: dict[str, Any] = {
        "topology": star(2, device="mac-mini-m4", bandwidth="1 Gbps", latency="50 us").document,
        "algorithm": {"path": f"{file}:algo"},
        "workload": {"name": "quadratic", "features": 4, "batch_size": 2},
        "stop": {"steps": 4},
        "out": folder / "run",
        "report": False,
    }
    return simcluster.run(**given | keys)


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_that_ends_well_is_a_warning_with_its_line(
    mistake: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code, kind, part, line = MISTAKES[mistake]
    done = run(tmp_path, code)
    assert done.summary["status"] == "done"
    (found,) = done.warnings
    assert found["kind"] == kind
    assert part in found["text"]
    assert (f"algo.py:{line} " in found["text"]) == bool(line)
    assert [f"warning: {found['text']}"] == caplog.messages
    assert found["text"] in repr(done)


def test_weights_that_are_loaded_and_messages_that_are_received_are_no_mistakes(tmp_path: Path) -> None:
    code = (
        BEGIN + LOOP + WORK + APPLY + "        await node.send(1 - node.rank, f'weights/{step}', replica.parameters)\n"
        "        theirs = (await node.recv(tag=f'weights/{step}')).tensors\n"
        "        for mine, other in zip(replica.parameters, theirs):\n            mine.copy_((mine + other) / 2)\n"
        + RECORD
    )
    assert run(tmp_path, code).warnings == []


LOSSES = {
    "a module": ("nn.CrossEntropyLoss(reduction='sum')", 7),
    "a partial": ("partial(cross_entropy, reduction='sum')", 7),
    "a function": ("scaled", 12),
    "a mean": ("nn.CrossEntropyLoss(label_smoothing=0.1)", 0),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_that_is_a_sum_over_samples_is_named_with_its_line(loss: str, tmp_path: Path) -> None:
    written, line = LOSSES[loss]
    (tmp_path / "own.py").write_text(
        "import torch\nfrom functools import partial\nfrom torch import nn\n"
        "from torch.nn.functional import cross_entropy\n"
        f"from simcluster import Workload\ndef make():\n    loss = {written}\n    x = torch.randn(16, 3)\n"
        "    sgd = lambda p: torch.optim.SGD(p, lr=0.01)\n    train = x, (x[:, 0] > 0).long()\n"
        "    return Workload(model=lambda: nn.Linear(3, 2), loss=loss, train=train, optimizer=sgd, batch_size=4)\n"
        "def scaled(outputs, targets):\n    return cross_entropy(outputs, targets) * len(targets)\n"
    )
    workload = {"path": f"{tmp_path / 'own.py'}:make"}
    found = run(tmp_path, "", algorithm="all_reduce_dp", workload=workload).warnings
    assert [row["kind"] for row in found] == ["loss_sums"] * bool(line)
    for row in found:
        assert f"own.py:{line} " in row["text"]
        assert "the loss is a sum over the samples of a batch" in row["text"]


def test_values_that_no_hardware_has_are_named_and_not_refused(tmp_path: Path) -> None:
    absurd = star(2, device={"flops": "10000000 TFLOP/s"}, bandwidth="1000 Tbps", latency="50 us").document
    found = [row["text"] for row in run(tmp_path, "", algorithm="all_reduce_dp", topology=absurd).warnings]
    assert len(found) == 4
    assert "topology.links.n0-sw.bandwidth: 1000 Tbps is more than any link has, at most 100 Tbps" in found[0]
    assert "topology.nodes.n0" in found[2]
    fast = star(2, device="mac-mini-m4", bandwidth="7200 Gbps", latency="1 us").document
    assert run(tmp_path, "", algorithm="all_reduce_dp", topology=fast, out=tmp_path / "fast").warnings == []


def test_the_same_mistakes_are_found_on_real_nodes(tmp_path: Path) -> None:
    code = (
        BEGIN + LOOP + WORK + "        replica.apply(gradients)\n        node.send(1 - node.rank, 'x', [])\n" + RECORD
    )
    found = {row["kind"]: row for row in run(tmp_path, code, backend="sockets").warnings}
    assert found.keys() == {"outside_compute", "not_awaited"}
    assert "algo.py:4 " in found["outside_compute"]["text"]
    assert "algo.py:5 " in found["not_awaited"]["text"]
    assert found["not_awaited"]["count"] == 8  # two nodes, four steps


def test_a_loss_that_is_infinite_is_named_with_its_rank_and_first_step(tmp_path: Path) -> None:
    code = BEGIN + LOOP + WORK + APPLY + "        loss = float('inf') if node.rank and step > 2 else loss\n" + RECORD
    (found,) = run(tmp_path, code).warnings
    assert (found["kind"], found["rank"], found["step"]) == ("not_finite", 1, 3)
    assert "the loss is inf from step 3 on, first at rank 1 (n1)" in found["text"]


def test_a_run_that_diverges_says_why_its_loss_is_null(tmp_path: Path) -> None:
    done = run(tmp_path, BEGIN + LOOP + WORK + APPLY + RECORD, overrides={"workload.learning_rate": 1e30})
    assert done.summary["loss"] is None
    assert [row["kind"] for row in done.warnings] == ["not_finite"]


CACHES = {
    "a constant": "SIZES = [1, 2]\n\n\n" + BEGIN + LOOP + WORK
    + "        gradients = [g * SIZES[0] for g in gradients]\n",
    "a cache": "KNOWN = {}\n\n\n" + BEGIN + LOOP + WORK + "        KNOWN.setdefault(step, 1 / step)\n"
    "        gradients = [g * KNOWN[step] for g in gradients]\n",
    "a log that no rank reads": "LOG = []\n\n\n" + BEGIN + LOOP + WORK + "        LOG.append(loss)\n",
    "state by rank": "MINE = {}\n\n\n" + BEGIN + LOOP + WORK
    + "        MINE[node.rank] = MINE.get(node.rank, 0) + 1\n"
    "        gradients = [g / MINE[node.rank] for g in gradients]\n",
}  # fmt: skip


@pytest.mark.parametrize("cache", CACHES)
def test_state_at_module_level_that_changes_no_result_is_no_warning(cache: str, tmp_path: Path) -> None:
    assert run(tmp_path, CACHES[cache] + APPLY + RECORD).warnings == []


def test_a_run_that_fails_names_the_send_that_was_not_awaited(tmp_path: Path) -> None:
    code = BEGIN + "    if node.rank:\n        node.send(0, 'x', [])\n    else:\n        await node.recv(1, 'x')\n"
    with pytest.raises(simcluster.RunError) as caught:
        run(tmp_path, code)
    (note,) = [note for note in caught.value.__notes__ if note.startswith("warning")]
    assert "algo.py:3 (algo) calls node.send without await, once" in note


def test_report_and_comparison_show_the_warnings(tmp_path: Path) -> None:
    done = run(tmp_path, BEGIN + LOOP + WORK + RECORD.replace("loss)", "loss, x=1)"), report=True)
    page = (done.folder / "report.html").read_text()
    assert 'class="doubts"' in page
    assert "no weight has changed on any node" in page
    compared = simcluster.compare(done, done)
    assert "warning: b: no weight has changed" in compared.describe()
    assert compared.to_dict()["pairs"][0]["a"]["warnings"] == done.warnings


@pytest.mark.slow
@pytest.mark.parametrize("numerics", sample_of(["real", "none"], 2))
@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_no_shipped_algorithm_has_a_warning(name: str, numerics: str, tmp_path: Path) -> None:
    layers = name in ("expert_parallel", "pipeline", "tensor_parallel")
    experts = {"experts": 5} if name == "expert_parallel" else {}
    small: dict[str, Any] = {**experts, "layers": 5, "width": 20, "heads": 5, "context": 8, "batch_size": 4}
    done = simcluster.run(
        topology="smolcluster", algorithm=name, numerics=numerics, stop={"steps": 3}, out=tmp_path / "run",
        workload={"name": "gpt", **small} if layers else {"name": "mnist_mlp", "hidden": 20}, report=False,
    )  # fmt: skip
    assert done.warnings == []
    assert done.summary["steps"] == 3


# gpt-70b-1024 takes minutes, and its algorithm is one of those above.
@pytest.mark.parametrize("name", ["quickstart", "eight-on-a-switch", ROOT / "experiments" / "own" / "own.yaml"])
def test_no_shipped_experiment_has_a_warning(name: str | Path, tmp_path: Path) -> None:
    done = simcluster.run(name, overrides={"stop": {"steps": 2}}, out=tmp_path / "run", report=False)
    assert done.warnings == []


def test_steps_are_those_of_a_worker_and_a_servers_updates_have_their_own_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from simcluster.cli.terminal.show import print_finished

    done = simcluster.run(
        topology="smolcluster", algorithm="edp", workload="quadratic", stop={"steps": 3}, out=tmp_path / "run"
    )
    assert (done.summary["steps"], done.summary["updates"]) == (3, 15)  # five ranks push three times each
    print_finished(done, as_json=False)
    assert "3 steps per worker, 15 updates in " in capsys.readouterr().out
    page = (done.folder / "report.html").read_text()
    assert "<dt>steps per worker</dt><dd>3<" in page
    assert "<dt>updates</dt><dd>15<" in page
    assert "3 steps per worker, 15 updates" in page
