"""A new schedule, generator, fault kind and algorithm: one place each, and everything takes it.

docs/architecture.md says where that is ("Where a new part goes"). Here the tables get their rows at run time.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest
import torch
from jsonschema import Draft7Validator
from simcluster_backends.sim import run_bodies
from simcluster_backends.sockets.launcher.faults import check_faults
from torch import Tensor

import simcluster
from simcluster import Topology, catalogue, topology
from simcluster.algorithms import ALGORITHMS
from simcluster.algorithms.by_place import PlacedSchedule
from simcluster.collectives import SCHEDULES, AllReduceSchedule, ScheduleOf, all_reduce
from simcluster.collectives.naive import naive_all_gather, naive_broadcast, naive_reduce, naive_reduce_scatter
from simcluster.documents import settings
from simcluster.documents.values import number
from simcluster.errors import UsageError
from simcluster.experiment import read_experiment
from simcluster.fault_plans import kinds
from simcluster.fault_plans.keys import KINDS, FaultKind, OwnKey
from simcluster.job import ClusterJob
from simcluster.topology.presets.generators import DEVICE, GENERATORS, LATENCY, RATE, TopologyShape, generator
from simcluster.transport import Transport
from tests.support.root import ROOT
from tools.schemas import experiment as experiment_schemas
from tools.schemas import topology as topology_schemas

EXPERIMENT: dict[str, Any] = {
    "topology": {"generator": "star", "workers": 3},
    "algorithm": "all_reduce_dp",
    "workload": "quadratic",
    "stop": {"steps": 3},
}


def ran(folder: Path, **changes: Any) -> Any:
    return simcluster.run(EXPERIMENT | changes, out=folder, report=False)


def schema() -> Draft7Validator:
    """Return the schema of experiments, made again from the tables."""
    topology_schemas._generated.cache_clear()
    return Draft7Validator(json.loads(experiment_schemas.experiment_schema()))


@pytest.fixture(autouse=True)
def settings_are_read_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An adapter of a setting is made once per function, with the names that there are then."""
    monkeypatch.setattr(settings, "_adapters", weakref.WeakKeyDictionary())
    yield
    topology_schemas._generated.cache_clear()


# a schedule: a function, and its row in simcluster/collectives/schedules.py


async def relayed(node: Transport, vector: Tensor, tag: str) -> Tensor:
    """Add up at rank 0, which sends the sum to all."""
    total = await naive_reduce(node, vector, f"{tag}/up", 0)
    (result,) = await naive_broadcast(node, [vector if total is None else total], f"{tag}/down", 0)
    return result


async def by_rooms(node: Transport, vector: Tensor, tag: str, *, sites: Any) -> Tensor:
    """Do the same, with an argument that an algorithm does not have."""
    return await relayed(node, vector, tag)


@pytest.fixture
def schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCHEDULES["all_reduce"], "relayed", relayed)
    monkeypatch.setitem(SCHEDULES["all_gather"], "relayed", naive_all_gather)
    monkeypatch.setitem(SCHEDULES["reduce_scatter"], "relayed", naive_reduce_scatter)
    monkeypatch.setitem(SCHEDULES["all_reduce"], "by_rooms", by_rooms)


OF_ALL_REDUCE = [
    "all_reduce_dp", "diloco", "expert_parallel", "local_sgd", "one_bit_adam", "streaming_diloco", "tensor_parallel"
]  # fmt: skip
MODELS = {"tensor_parallel": {"name": "mnist_mlp", "hidden": 6}, "expert_parallel": {"name": "mnist_moe", "experts": 6}}


def test_the_algorithms_that_take_a_schedule_are_known() -> None:
    hints = {name: get_type_hints(made, include_extras=True) for name, made in ALGORITHMS.items()}
    assert [
        name for name in hints if hints[name].get("schedule") in (AllReduceSchedule, PlacedSchedule)
    ] == OF_ALL_REDUCE
    assert [name for name in hints if "schedule" in hints[name] and name not in OF_ALL_REDUCE] == ["pipeline"]


@pytest.mark.slow
@pytest.mark.usefixtures("schedules")
@pytest.mark.parametrize("name", OF_ALL_REDUCE)
def test_a_new_schedule_is_a_setting_of_every_algorithm_and_trains(name: str, tmp_path: Path) -> None:
    layers = {"workload": MODELS[name]} if name in MODELS else {}
    short = {"interval": 1} if "interval" in inspect.signature(ALGORITHMS[name]).parameters else {}
    with_it, ring = (
        ran(tmp_path / schedule, algorithm={"name": name, "schedule": schedule, **short}, **layers)
        for schedule in ("relayed", "ring")
    )
    assert with_it.config["algorithm"]["schedule"] == "relayed"
    assert with_it.summary["loss"] == pytest.approx(ring.summary["loss"], rel=1e-4)
    assert with_it.summary["messages_sent"] != ring.summary["messages_sent"]


@pytest.mark.usefixtures("schedules")
def test_zero_takes_new_schedules_of_its_two_operations(tmp_path: Path) -> None:
    given = {"name": "zero", "stage": 2, "reduce": "relayed", "gather": "relayed"}
    new, naive = (
        ran(tmp_path / name, algorithm=given | {"reduce": name, "gather": name}, workload={"name": "mnist_mlp"})
        for name in ("relayed", "naive")
    )
    assert new.summary["trace_sha256"] == naive.summary["trace_sha256"]


@pytest.mark.slow
@pytest.mark.usefixtures("schedules")
def test_a_new_schedule_is_run_by_python_measured_by_the_command_and_named_by_errors(command: Any) -> None:
    async def body(node: Transport) -> float:
        return float(await all_reduce(node, torch.tensor([node.rank + 1.0]), "sum", schedule="relayed"))

    assert run_bodies([body] * 3, Topology.star(3)) == [6.0, 6.0, 6.0]
    bench = ("bench", "collective", "--op", "all_reduce", "--topology", "thunderbolt-mesh-4", "--bytes", "4000")
    code, out, _ = command(*bench, "--schedule", "relayed", "--json")
    assert code == 0
    assert (json.loads(out)["schedule"], json.loads(out)["messages"]) == ("relayed", 6)
    _, _, err = command(*bench, "--schedule", "relaid")
    assert "naive, recursive_doubling, relayed, ring" in err
    run = ("run", "quickstart", "--algorithm", "diloco", "--out", "run", "--set", "stop.steps=2")
    code, _, err = command(*run, "--set", "algorithm.schedule=relaid")
    assert code == 2
    assert "'bandwidth_aware', 'relayed' or 'by_rooms'" in err, "as every list of choices ends"
    code, _, _ = command(*run, "--set", "algorithm.schedule=relayed", "--no-report")
    assert code == 0


@pytest.mark.usefixtures("schedules")
def test_a_schedule_that_needs_sites_is_measured_and_a_setting_only_next_to_them(command: Any) -> None:
    others = set(SCHEDULES["all_reduce"]) - set(ScheduleOf("all_reduce").names)
    assert others == {"by_rooms", "hierarchical", "bandwidth_aware"}
    bench = ("bench", "collective", "--op", "all_reduce", "--topology", "thunderbolt-mesh-4", "--bytes", "4000")
    assert command(*bench, "--schedule", "by_rooms")[0] == 0
    with pytest.raises(UsageError, match="'halving_doubling' or 'relayed'"):
        read_experiment(EXPERIMENT | {"algorithm": {"name": "one_bit_adam", "schedule": "by_rooms"}})
    sited = {"name": "diloco", "schedule": "by_rooms", "sites": [["n0", "n1"], ["n2"]]}
    assert read_experiment(EXPERIMENT | {"algorithm": sited}).algorithm_settings["schedule"] == "by_rooms"


@pytest.mark.usefixtures("schedules")
def test_a_new_schedule_is_in_the_schema() -> None:
    for name, fits in {"relayed": True, "by_rooms": False}.items():
        assert schema().is_valid(EXPERIMENT | {"algorithm": {"name": "one_bit_adam", "schedule": name}}) == fits


# a generator: a function with @generator in simcluster/topology/presets/generators.py


def hypercube(
    dimension: int, *, bandwidth: Any = RATE, latency: Any = LATENCY, duplex: Any = "full", device: Any = DEVICE
) -> TopologyShape:
    """Link workers that differ in one bit of their *dimension* bits."""
    if not 1 <= dimension <= 10:
        raise UsageError(f"{dimension} dimensions: from 1 to 10")
    size, keys = 2**dimension, {"bandwidth": bandwidth, "latency": latency, "duplex": duplex}
    pairs = [(a, a | 1 << bit) for a in range(size) for bit in range(dimension) if not a & 1 << bit]
    nodes = {f"n{rank}": {"device": device} for rank in range(size)}
    return TopologyShape(f"hypercube-{dimension}", nodes, [(f"n{a}", f"n{b}", keys) for a, b in pairs])


@pytest.fixture
def generators() -> Iterator[None]:
    generator(hypercube)
    topology.add_generators()
    yield
    del GENERATORS["hypercube"], Topology.hypercube, topology.hypercube


CUBE = {"generator": "hypercube", "dimension": 2}


@pytest.mark.usefixtures("generators")
def test_a_new_generator_is_a_function_of_topology_and_a_topology_in_a_file(command: Any, tmp_path: Path) -> None:
    cube = Topology.hypercube(3, latency="1 ms")
    assert (len(cube.workers), len(cube.links), cube.links[0].latency_s) == (8, 12, 1e-3)
    assert cube == topology.hypercube(3, latency="1 ms") == Topology.load(CUBE | {"dimension": 3, "latency": "1 ms"})
    assert "dimension" in inspect.signature(Topology.hypercube).parameters
    (tmp_path / "cube.yaml").write_text("generator: hypercube\ndimension: 3\n")
    assert "hypercube-3" in command("topology", "check", "cube.yaml")[1]
    assert len(ran(tmp_path / "run", topology=CUBE).summary["nodes"]) == 4
    run = ("run", "quickstart", "--out", "set", "--no-report", "--set", "stop.steps=2")
    code, out, err = command(*run, "--topology", "cube.yaml", "--set", "topology.dimension=1", "--json")
    assert (code, len(json.loads(out)["nodes"])) == (0, 2), err


@pytest.mark.usefixtures("generators")
def test_a_new_generator_is_listed_and_its_errors_say_what_it_takes(command: Any) -> None:
    _, out, _ = command("list", "generators")
    assert "hypercube" in out
    assert "(dimension, bandwidth='1 Gbps'" in out
    for wrong, expected in (
        ({"generator": "hypercub", "dimension": 2}, "did you mean 'hypercube'?"),
        (CUBE | {"dimension": 11}, "generator: found hypercube with 11 dimensions, expected from 1 to 10"),
        (CUBE | {"workers": 2}, "one of this generator: dimension, bandwidth, latency, duplex, device"),
        ({"generator": "star", "workers": 2, "dimension": 2}, "found a setting of hypercube"),
        ({"generator": "hypercube"}, "dimension: found nothing"),
    ):
        with pytest.raises(UsageError) as error:
            Topology.load(wrong)
        assert expected in str(error.value)


@pytest.mark.usefixtures("generators")
def test_a_new_generator_is_in_the_schema() -> None:
    for dimension, fits in ((2, True), ("two", False)):
        assert schema().is_valid(EXPERIMENT | {"topology": CUBE | {"dimension": dimension}}) == fits
    assert "generator_hypercube" in json.loads(topology_schemas.topology_schema())["definitions"]


# a fault kind: a class, and its row in simcluster/fault_plans/keys.py


class Congestion(kinds.Bandwidth):
    """Others leave a share of the link."""


class Outage(kinds.Cut):
    """No message passes."""


_SHARE = number(lambda x: 0 < x < 1, "a number above 0 and below 1: what others leave", exclusiveMinimum=0)
_LINK = ("link", "towards", "for")


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> None:
    left = OwnKey("factor", _SHARE, "what others leave of the bandwidth, like 0.5")
    monkeypatch.setitem(KINDS, "congestion", FaultKind(Congestion, _LINK, own={"left": left}))
    monkeypatch.setitem(KINDS, "outage", FaultKind(Outage, _LINK))


CONGESTION = {"kind": "congestion", "link": "n1-sw", "at": "0 s", "left": 0.01}


@pytest.mark.slow
@pytest.mark.usefixtures("faults")
def test_a_new_fault_happens_from_a_file_from_python_and_from_the_command(command: Any, tmp_path: Path) -> None:
    quiet = ran(tmp_path / "quiet")
    filed = ran(tmp_path / "filed", faults=[CONGESTION])
    assert filed.summary["elapsed_s"] > quiet.summary["elapsed_s"]
    assert [(fault["kind"], fault["target"]) for fault in filed.summary["faults"]] == [("congestion", "n1-sw")]
    with simcluster.faults() as plan:
        plan.add("congestion", link="n1-sw", at_s=0.0, left=0.01)
        planned = ran(tmp_path / "planned")
    assert planned.summary["trace_sha256"] == filed.summary["trace_sha256"]
    fault = "faults=[{kind: congestion, link: pi5-mini1, at: 0 s, left: 0.5}]"
    run = ("run", "quickstart", "--set", "stop.steps=2", "--out", "run", "--json", "--no-report")
    code, out, err = command(*run, "--set", fault)
    assert (code, json.loads(out)["faults"][0]["kind"]) == (0, "congestion"), err


@pytest.mark.usefixtures("faults")
def test_a_new_faults_errors_name_its_keys_and_real_nodes_refuse_or_do_it() -> None:
    for wrong, expected in (
        ({"kind": "congestio"}, "did you mean 'congestion'?"),
        (CONGESTION | {"left": 2}, "faults[0].left: found 2, expected a number above 0 and below 1: what others leave"),
        ({key: CONGESTION[key] for key in ("kind", "link", "at")}, "expected what others leave of the bandwidth"),
        (CONGESTION | {"node": "n1"}, "faults[0].node: unknown key"),
    ):
        with pytest.raises(UsageError) as error:
            read_experiment(EXPERIMENT | {"faults": [wrong]})
        assert expected in str(error.value)
    outage = {"kind": "outage", "link": "n1-sw", "at": "1 s", "for": "1 s"}
    plan = read_experiment(EXPERIMENT | {"faults": [CONGESTION, outage]})
    job = ClusterJob(plan.topology.workers, "{}", topology=plan.topology, faults=plan.faults)
    (problem,) = check_faults(job)
    assert problem.found == "congestion, which sockets cannot do"
    assert "partition, reset or outage" in problem.expected


@pytest.mark.usefixtures("faults")
def test_a_new_fault_is_in_the_schema() -> None:
    for fault, fits in ((CONGESTION, True), (CONGESTION | {"left": "much"}, False), ({"kind": "congestion"}, False)):
        assert schema().is_valid(EXPERIMENT | {"faults": [fault]}) == fits


# an algorithm: a file, and its import in simcluster/algorithms/__init__.py

ECHO = '''"""Every rank takes its own steps, and all average their weights at the end."""

from pydantic import PositiveInt

from simcluster.algorithms.facts import Facts
from simcluster.algorithms.steps import steps
from simcluster.collectives import AllReduceSchedule, all_reduce, flatten, unflatten


@Facts(copies=lambda rank, size, settings: 2.0)
async def echo(node, replica, *, every: PositiveInt = 2, schedule: AllReduceSchedule = "ring") -> None:
    """Average the weights *every* steps.

    *schedule*: of the all-reduce.
    """
    async for step, batch in steps(replica):
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        await node.compute(replica.apply, gradients, cost=replica.apply_cost())
        if step % every == 0:
            mean = await all_reduce(node, flatten(replica.parameters), f"{step}", schedule=schedule, divisor=node.size)
            replica.load(unflatten(mean, replica.parameters))
        node.record(step=step, loss=loss)
'''


@pytest.fixture
def algorithm(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Add the algorithm to the table, and to a copy of the source, which the list is read from."""
    root = tmp_path_factory.mktemp("library")
    package, home = Path(simcluster.__file__).parent, "simcluster.algorithms.gossip.echo"
    (root / "algorithms" / "gossip").mkdir(parents=True)
    for file in [*package.glob("*"), *package.glob("algorithms/*"), *package.glob("algorithms/gossip/*.py")]:
        if not (root / file.relative_to(package)).exists():
            (root / file.relative_to(package)).symlink_to(file)
    listing = root / "algorithms" / "__init__.py"
    text = listing.read_text()
    listing.unlink()
    listing.write_text(f"from {home} import echo as echo\n{text}")
    path = root / "algorithms" / "gossip" / "echo.py"
    path.write_text(ECHO)
    spec = importlib.util.spec_from_file_location(home, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, home, module)
    spec.loader.exec_module(module)
    monkeypatch.setitem(ALGORITHMS, "echo", module.echo)
    monkeypatch.setattr(catalogue, "find_spec", lambda name: SimpleNamespace(origin=str(root / "__init__.py")))


@pytest.mark.slow
@pytest.mark.usefixtures("algorithm", "schedules")
def test_a_new_algorithm_runs_from_a_file_and_from_the_command_with_its_settings(command: Any, tmp_path: Path) -> None:
    block = {"name": "echo", "every": 1, "schedule": "relayed"}
    filed = ran(tmp_path / "filed", algorithm=block, topology={"generator": "star", "workers": 4})
    assert filed.config["algorithm"] == block
    assert filed.summary["messages_sent"] == 3 * 2 * 3, "three steps, up to rank 0 and down again"
    run = ("run", "quickstart", "--algorithm", "echo", "--out", "run", "--set", "stop.steps=2", "--no-report")
    code, out, err = command(*run, "--set", "algorithm.schedule=relayed", "--set", "algorithm.every=1", "--json")
    assert (code, json.loads(out)["messages_sent"]) == (0, 2 * 2 * 4), err


@pytest.mark.usefixtures("algorithm")
def test_a_new_algorithm_is_listed_and_checked_by_its_signature(command: Any) -> None:
    _, out, _ = command("list", "algorithms")
    assert "echo                   (every=2, schedule='ring')  Average the weights every steps." in out
    for wrong, expected in (
        ("ehco", "did you mean 'echo'?"),
        ({"name": "echo", "evry": 2}, "did you mean 'every'?"),
        ({"name": "echo", "every": 0}, "greater than 0"),
        ({"name": "echo", "schedule": "relayed"}, "'recursive_doubling' or 'halving_doubling'"),
    ):
        with pytest.raises(UsageError) as error:
            read_experiment(EXPERIMENT | {"algorithm": wrong})
        assert expected in str(error.value)
    assert schema().is_valid(EXPERIMENT | {"algorithm": {"name": "echo", "every": 3}})
    assert not schema().is_valid(EXPERIMENT | {"algorithm": {"name": "echo", "every": "often"}})


# what documents a part


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("collectives", {name for op in SCHEDULES.values() for name in op}),
        ("faults", set(KINDS)),
        ("getting-started", set(GENERATORS)),
    ],
)
def test_every_part_is_in_its_page(page: str, names: set[str]) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert [name for name in sorted(names) if f"`{name}`" not in text and f"\n| {name} |" not in text] == []
