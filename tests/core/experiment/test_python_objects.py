"""Functions, partials, workloads, graphs and topologies as arguments: the same bits on both backends, repeatable."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import simcluster
from simcluster import Topology, UsageError, Workload
from simcluster.algorithms import ALGORITHMS
from simcluster.errors import Deadlock, NodeFailed
from simcluster.workloads import sgd
from tests.support.cells import Cells

CELLS = (
    "from simcluster import Replica, Transport\nfrom simcluster.algorithms import steps\n"
    "from simcluster.collectives import flatten, ring_all_reduce, unflatten\n",
    "async def mean(node, vector, tag):\n    return await ring_all_reduce(node, vector, tag) / node.size\n",
    "async def mine(node: Transport, replica: Replica, *, interval: int = 10) -> None:\n"
    "    async for step, batch in steps(replica):\n"
    "        cost = replica.gradient_cost(batch)\n"
    "        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=cost)\n"
    "        await node.compute(replica.apply, gradients, cost=replica.apply_cost())\n"
    "        if step % interval == 0:\n"
    "            replica.load(unflatten(await mean(node, flatten(replica.parameters), f'a/{step}'),"
    " replica.parameters))\n"
    "        node.record(step=step, loss=loss)\n",
)


def workload() -> Workload:
    inputs = torch.randn(60, 4, generator=torch.Generator().manual_seed(1))
    model = functools.partial(nn.Linear, 4, 2)
    targets = (inputs[:, 0] > 0).long()
    return Workload(model, nn.functional.cross_entropy, (inputs, targets), sgd(0.1), 4)


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    return Cells(*CELLS).mine


@pytest.mark.slow
def test_a_cells_algorithm_and_a_workload_object_give_both_backends_the_same_bits_and_can_be_repeated(
    mine: Any,
) -> None:
    parts = {"algorithm": functools.partial(mine, interval=2), "workload": workload(), "topology": Topology.star(3)}
    runs = [simcluster.run(**parts, stop={"steps": 4}, backend=b, report=False) for b in ("sim", "sockets")]
    again = simcluster.run(runs[0].folder / "config.yaml", out="again", report=False)
    assert len({run.summary["weights_sha256"] for run in [*runs, again]}) == 1
    assert runs[0].summary["algorithm"] == "mine.py:mine"
    assert runs[0].config["algorithm"]["interval"] == 2
    # 3 ranks; 2 averages in 4 steps: rings of 2 (3-1) messages a rank
    assert [run.summary["messages_sent"] for run in runs] == [3 * 2 * 4] * 2
    file = Path(runs[0].config["algorithm"]["path"].rpartition(":")[0])
    assert file.is_relative_to(runs[0].folder.resolve())
    assert "async def mine(" in file.read_text()


class Points(Dataset[Any]):
    """Data that no other process can have: they hold a lock."""

    def __init__(self) -> None:
        self.lock, self.given = threading.Lock(), workload().train

    def __len__(self) -> int:
        return 60

    def __getitem__(self, number: int) -> Any:
        return self.given[0][number], self.given[1][number]


class Flow(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([self.points[number] for number in range(60)])

    def __init__(self, points: Any) -> None:
        self.points = points


def whole(mine: Any, given: Workload, out: str, **keys: Any) -> simcluster.Run:
    return simcluster.run(
        algorithm=mine, workload=given, topology=Topology.star(2), stop={"steps": 2}, out=out, report=False, **keys
    )


@pytest.mark.slow
def test_the_commonest_forms_of_pytorch_make_a_workload(mine: Any) -> None:
    given = workload()
    rate = functools.partial(torch.optim.SGD, lr=0.1)
    forms: list[dict[str, Any]] = [
        {},
        {"loss": nn.CrossEntropyLoss()},
        {"loss": nn.CrossEntropyLoss, "train": Points()},
        {"train": DataLoader(Points(), batch_size=7, shuffle=True), "test": Points()},
        {"optimizer": rate, "train": TensorDataset(*given.train)},
        {"optimizer": lambda parameters: rate(parameters), "train": list(zip(*given.train, strict=True))},
    ]
    runs = [whole(mine, replace(given, **form), f"{number}") for number, form in enumerate(forms)]
    assert len({run.summary["weights_sha256"] for run in runs}) == 1
    assert whole(mine, replace(given, optimizer=torch.optim.SGD), "sgd").summary["status"] == "done"
    again = simcluster.run("3/config.yaml", out="again", report=False)
    assert again.summary["weights_sha256"] == runs[0].summary["weights_sha256"], "its data were written with it"


@pytest.mark.slow
def test_what_no_other_process_can_have_is_enough_for_the_simulator_and_refused_elsewhere(mine: Any) -> None:
    kept = replace(workload(), train=Flow(Points()))
    run = whole(mine, kept, "kept")
    assert (
        run.summary["weights_sha256"]
        == whole(mine, replace(kept, train=Flow(list(Points()))), "plain").summary["weights_sha256"]
    )
    with pytest.raises(UsageError, match=r"found lock of points of train, a lock, .*def make\(\): return Workload"):
        whole(mine, kept, "real", backend="sockets")
    assert not Path("real").exists()
    (source,) = Path("kept/source").glob("*/workload.py")
    names: dict[str, Any] = {}
    exec(source.read_text().replace("taken(", "taken(10 ** 6 + "), names)  # as in a process that holds nothing
    with pytest.raises(UsageError, match=r"an object of the process that ran it .*expected a function that makes it"):
        names["workload"]()


@pytest.mark.slow
def test_errors_warnings_and_deadlocks_name_the_line_of_the_cell(mine: Any) -> None:
    cells = Cells(
        CELLS[0],
        "\n\nasync def stuck(node, replica):\n    await node.recv(1 - node.rank, 'never')\n"
        "async def hasty(node, replica):\n    async for step, batch in steps(replica):\n"
        "        node.record(step=step, loss=replica.loss_and_gradients(batch)[0])\n"
        "async def wrong(node, replica):\n    raise ValueError(node.rank)\n",
    )
    file = cells.stuck.__code__.co_filename
    with pytest.raises(Deadlock) as caught:
        whole(cells.stuck, workload(), "stuck")
    assert f" at {file}:4 (stuck): `await node.recv(1 - node.rank, 'never')`" in str(caught.value)
    (warning, *_) = whole(cells.hasty, workload(), "hasty").warnings
    assert warning["at"] == f"{file}:7 (hasty)"
    assert warning["text"].startswith(f"{file}:7 (hasty) calls replica.loss_and_gradients")
    with pytest.raises(NodeFailed) as failed:
        whole(cells.wrong, workload(), "wrong")
    assert failed.value.__notes__[0].startswith(f'  File "{file}", line 9, in wrong')


@pytest.mark.exhaustive
def test_a_run_that_has_moved_runs_again_from_its_own_source(mine: Any) -> None:
    made = simcluster.run("quickstart", algorithm=mine, stop={"steps": 2}, report=False)
    moved = made.folder.rename("moved")
    again = simcluster.run(moved / "config.yaml", out="again", report=False)
    assert again.summary["weights_sha256"] == made.summary["weights_sha256"]


@pytest.mark.slow
@pytest.mark.parametrize(("bring", "backend"), [(shutil.move, "sockets"), (shutil.copytree, "sim")])
def test_a_run_that_was_moved_or_copied_resumes_from_its_own_source_to_the_same_bits(
    mine: Any, bring: Any, backend: str
) -> None:
    parts = {"algorithm": functools.partial(mine, interval=2), "workload": workload(), "topology": Topology.star(2)}
    keys: dict[str, Any] = {**parts, "checkpoint": {"every": 2}, "backend": backend, "report": False}
    whole = simcluster.run(**keys, stop={"steps": 6}, out="whole")
    first = simcluster.run(**keys, stop={"steps": 4}, out="first").folder
    bring(str(first), "other")
    for file in first.glob("source/*/*"):  # of a copied run, the first one's is not to be used
        file.write_bytes(b"")
    resumed = simcluster.resume("other", step=2, overrides={"stop.steps": 6}, report=False)
    assert resumed.summary["resumed"]["step"] == 2
    assert resumed.summary["weights_sha256"] == whole.summary["weights_sha256"]
    named = [Path(resumed.config[block]["path"]) for block in ("algorithm", "workload")]
    assert all(path.is_relative_to(Path("other").resolve() / "source") for path in named)
    again = simcluster.resume("other", step=4, overrides={"stop.steps": 8}, report=False)
    assert again.summary["resumed"]["step"] == 4, "a checkpoint that was written there"


@pytest.mark.slow
def test_a_run_resumed_into_another_folder_has_its_source_there(mine: Any) -> None:
    keys: dict[str, Any] = {"algorithm": mine, "checkpoint": {"every": 2}, "report": False}
    first = simcluster.run("quickstart", **keys, stop={"steps": 4}, out="first").folder
    simcluster.resume(first, step=2, overrides={"stop.steps": 6}, out="second", report=False)
    shutil.rmtree(first)
    again = simcluster.resume("second", step=6, overrides={"stop.steps": 8}, report=False)
    assert Path(again.config["algorithm"]["path"]).is_relative_to(Path("second").resolve())


def test_a_run_that_was_moved_without_its_source_does_not_resume(mine: Any) -> None:
    keys: dict[str, Any] = {"algorithm": mine, "checkpoint": {"every": 2}, "stop": {"steps": 4}, "report": False}
    simcluster.run("quickstart", **keys, out="first").folder.rename("moved")
    (source,) = Path("moved/source").iterdir()
    source.rename("elsewhere")
    source.symlink_to(Path("elsewhere").resolve())
    with pytest.raises(UsageError, match=r"algorithm\.path: found '.*/first/source/.*', expected a file at"):
        simcluster.resume("moved", step=2, report=False)


def test_a_bad_request_writes_nothing_and_names_no_file_that_is_not_there(mine: Any, tmp_path: Path) -> None:
    cells = Cells("import time\ndef mine(node, replica):\n    return time\n")
    with pytest.raises(UsageError) as caught:
        simcluster.run("quickstart", algorithm=cells.mine)
    assert str(caught.value).splitlines()[0].endswith(":2: algorithm: found mine, expected an `async def` function")
    assert "import: found time, expected await asyncio.sleep" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_shipped_function_is_its_name_and_partial_keywords_are_settings(mine: Any) -> None:
    given = functools.partial(ALGORITHMS["edp"], pull_interval=3)
    run = simcluster.run("quickstart", algorithm=given, stop={"steps": 2}, report=False)
    assert (run.config["algorithm"]["name"], run.config["algorithm"]["pull_interval"]) == ("edp", 3)
    with pytest.raises(UsageError, match=r"algorithm\.pull_interval: found <object"):
        simcluster.run("quickstart", algorithm=functools.partial(ALGORITHMS["edp"], pull_interval=object()))


@pytest.mark.slow
def test_graphs_topologies_and_mappings_are_one_topology(mine: Any) -> None:
    about = {"device": "raspberry-pi-5", "bandwidth": "1 Gbps", "latency": "100 us"}
    graph: networkx.Graph[int] = networkx.cycle_graph(3)
    topology = Topology.from_networkx(graph, **about)
    for node in graph.nodes.values():
        node["device"] = "raspberry-pi-5"
    for edge in graph.edges.values():
        edge.update(bandwidth="1 Gbps", latency="100 us")
    given = (graph, topology, dict(topology.document))
    runs = [
        simcluster.run("quickstart", topology=one, stop={"steps": 2}, out=f"{number}", report=False)
        for number, one in enumerate(given)
    ]
    assert len({run.summary["trace_sha256"] for run in runs}) == 1
    assert list(runs[0].summary["nodes"]) == ["0", "1", "2"]
    made = (
        Topology.ring(4),
        Topology.chain(4),
        Topology.complete(4),
        Topology.torus(2, 2),
        Topology.load("smolcluster"),
    )
    assert [len(one.workers) for one in made] == [4, 4, 4, 4, 5]


def test_nodes_of_a_networkx_grid_are_called_by_their_coordinates() -> None:
    topology = Topology.from_networkx(
        networkx.grid_2d_graph(2, 2), device="raspberry-pi-5", bandwidth="1 Gbps", latency="1 ms"
    )
    assert list(topology.nodes) == ["0_0", "0_1", "1_0", "1_1"]


def test_networkx_nodes_that_would_have_one_name_are_refused() -> None:
    graph = networkx.Graph([((0, 1), "0_1"), ("0_1", 2)])
    with pytest.raises(
        UsageError, match=r"nodes\[1\]: found a second node called 0_1: \(0, 1\) and '0_1', expected one"
    ):
        Topology.from_networkx(graph, device="raspberry-pi-5", bandwidth="1 Gbps", latency="1 ms")


def test_keys_replace_those_of_an_experiment_and_an_unknown_one_is_named(mine: Any) -> None:
    run = simcluster.run("quickstart", stop={"steps": 3}, overrides={"algorithm.pull_interval": 1}, report=False)
    assert run.summary["steps"] == 3
    with pytest.raises(UsageError, match=r"overrides steps: unknown key 'steps'; did you mean stop\.steps, in Python "):
        simcluster.run("quickstart", steps=3)


@pytest.mark.slow
def test_a_sweep_takes_functions_as_values_and_repeats_none(mine: Any) -> None:
    values = {"algorithm": ["edp", mine, functools.partial(mine, interval=1)]}
    how: dict[str, Any] = {"overrides": {"stop.steps": 3}, "jobs": 1, "report": False}
    first = simcluster.sweep("quickstart", values, **how)
    assert first.table["algorithm"].tolist() == ["edp", "mine", "mine(interval=1)"]
    assert first.table["status"].tolist() == ["done"] * 3
    told: list[tuple[int, int, int]] = []
    second = simcluster.sweep("quickstart", values, progress=lambda *now: told.append(now), **how)
    assert told == [(3, 3, 3)], "all runs were there"
    assert second.table["weights_sha256"].tolist() == first.table["weights_sha256"].tolist()


@pytest.mark.slow
def test_whatif_and_verify_take_functions(mine: Any) -> None:
    found = simcluster.whatif(
        "quickstart", "step-time", algorithm=mine, workload=workload(), stop={"steps": 2}, seeds=1, jobs=1, report=False
    )
    assert found.value > 0
    verified = simcluster.verify(mine, quick=True, nodes=[1, 2], backend="sim", only=["alone", "determinism"])
    assert verified.ok
    assert verified.algorithm == "mine.py:mine"


@pytest.mark.slow
def test_a_main_script_needs_no_guard_and_its_classes_travel(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\nfrom torch import nn\nimport simcluster\nfrom simcluster import Workload\n"
        "from simcluster.workloads import sgd\n"
        "class Net(nn.Module):\n    kind = 'plain'\n\n"
        "    def __init__(self):\n        super().__init__()\n        self.layer = nn.Linear(2, 2)\n\n"
        "    def forward(self, x):\n        return self.layer(x)\n\n"
        "class Width:\n    value = 3\n\n"
        "def make(*, lr: float = 0.1):\n"
        "    data = (torch.ones(80, 2), torch.zeros(80).long())\n"
        "    return Workload(Net, nn.functional.cross_entropy, data, sgd(lr), 2 if Width.value else 1)\n"
        "run = simcluster.run('quickstart', workload=make, stop={'steps': 2}, backend='sockets', report=False)\n"
        "print(run.summary['status'])\n"
    )
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


def test_compare_takes_folders_and_runs(mine: Any) -> None:
    run = simcluster.run("quickstart", stop={"steps": 2}, report=False)
    assert simcluster.compare(run, str(run.folder), run.folder).describe()
    with pytest.raises(UsageError, match="no folder nowhere"):
        simcluster.compare(run, "nowhere")


@pytest.mark.slow
def test_copies_of_the_same_own_code_are_no_difference(mine: Any) -> None:
    given = {"topology": Topology.star(2), "workload": workload(), "stop": {"steps": 2}, "report": False}
    one, same = (simcluster.run(algorithm=mine, **given, out=name) for name in ("one", "same"))
    other = simcluster.run(algorithm=functools.partial(mine, interval=2), **given, out="other")
    assert one.config["algorithm"]["path"] != same.config["algorithm"]["path"]
    assert not simcluster.compare(one, same).pairs[0].settings
    assert [found.key for found in simcluster.compare(one, other).pairs[0].settings] == ["algorithm.interval"]
