"""The JSON schemas are those of the models, accept every shipped file, and refuse what the readers refuse."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from simcluster.algorithms import ALGORITHMS
from simcluster.documents.settings import settings_of
from simcluster.documents.yaml import load, loads
from simcluster.errors import UsageError
from simcluster.experiment.read.read import read_experiment
from simcluster.topology.read.read import loads as load_topology
from simcluster.workloads import WORKLOADS
from tests.support.root import ROOT, TOOLS
from tools.schemas import __main__ as schemas

SHIPPED = sorted(
    path
    for path in (*ROOT.glob("topologies/*.yaml"), *ROOT.glob("experiments/**/*.yaml"), ROOT / "docs/torch/three.yaml")
    if path.name != "parts.yaml"  # prices of parts: neither a topology nor an experiment
)
KEPT = sorted((TOOLS / "swarm" / "kept").glob("*.yaml"))
FIRST = re.compile(r"# yaml-language-server: \$schema=(\S+)")


def validator(kind: str) -> Draft7Validator:
    schema = json.loads((schemas.FOLDER / f"{kind}.json").read_text(encoding="utf-8"))
    Draft7Validator.check_schema(schema)
    return Draft7Validator(schema)


TOPOLOGY, EXPERIMENT = validator("topology"), validator("experiment")


@pytest.mark.parametrize("kind", schemas.MAKERS)
def test_the_schemas_are_those_of_the_models(kind: str) -> None:
    there = (schemas.FOLDER / f"{kind}.json").read_text(encoding="utf-8")
    assert there == schemas.MAKERS[kind](), "`make schemas` writes them again"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_the_first_line_of_every_shipped_file_leads_to_a_schema_that_accepts_it(path: Path) -> None:
    found = FIRST.fullmatch(path.read_text(encoding="utf-8").splitlines()[0])
    assert found is not None
    schema = (path.parent / found[1]).resolve()
    assert schema.parent == schemas.FOLDER
    assert [error.message for error in validator(schema.stem).iter_errors(load(path).data)] == []


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_experiments_with_faults_are_accepted(path: Path) -> None:
    assert [error.message for error in EXPERIMENT.iter_errors(load(path).data)] == []


WORKER = "flops: 1 GFLOP/s"
CHAIN = f"nodes: {{a: {{{WORKER}}}, b: {{{WORKER}}}}}\nlinks: [{{between: [a, b], bandwidth: 1 Gbps, latency: 1 ms}}]\n"

WRONG_TOPOLOGIES = {
    "a misspelt key of the whole": CHAIN + "netwrok: maxmin\n",
    "a misspelt key of a node": CHAIN.replace("flops", "flop", 1),
    "a bandwidth without a unit": CHAIN.replace("1 Gbps", "1000"),
    "a bandwidth with a unit of time": CHAIN.replace("1 Gbps", "1 ms"),
    "an unknown device": CHAIN.replace(WORKER, "device: mac-mimi-m4", 1),
    "a node that is a list": CHAIN.replace(f"{{{WORKER}}}", "[]", 1),
    "a link without ends": CHAIN.replace("between: [a, b], ", ""),
    "a link with three ends": CHAIN.replace("[a, b]", "[a, b, c]"),
    "a link without a latency": CHAIN.replace(", latency: 1 ms", ""),
    "a straggler of no kind": CHAIN.replace(WORKER, f"{WORKER}, straggler: {{kind: slow, factor: 2}}", 1),
    "a straggler with another kind's key": CHAIN.replace(WORKER, f"{WORKER}, straggler: {{kind: constant, sigma: 2}}"),
    "a generator of no name": "generator: galaxy\nworkers: 4\n",
    "a generator without workers": "generator: star\n",
    "a generator with another's setting": "generator: star\nworkers: 4\nrows: 2\n",
    "no nodes": "name: x\n",
    "a switch with a device": CHAIN.replace(f"{{{WORKER}}}", "{kind: switch, flops: 1 GFLOP/s}", 1),
}
RIGHT_TOPOLOGIES = {
    "a chain": CHAIN,
    "keys without values": CHAIN + "routing:\ndescription:\n",
    "stragglers": CHAIN.replace(WORKER, f"{WORKER}, straggler: {{factor: 2}}", 1).replace(
        f"{{{WORKER}}}", f"{{{WORKER}, straggler: {{kind: lognormal, sigma: 1}}}}"
    ),
    "conditions": CHAIN.replace("1 ms}", "1 ms, jitter: 1 us, background: {rate: 1 Mbps}, trace: {steps: {0 s: 0.5}}}"),
    "an accelerator": CHAIN.replace(
        WORKER, f"{WORKER}, accelerator: {{kind: cuda, flops: 1 TFLOP/s}}, compute: cuda:1"
    ),
    "a generator": "generator: torus\nrows: 3\ncolumns: 3\nbandwidth: 1 Gbps\ninbox: 1 MB\n",
}


@pytest.mark.parametrize("text", WRONG_TOPOLOGIES.values(), ids=WRONG_TOPOLOGIES)
def test_a_wrong_topology_is_refused_by_the_schema_and_by_the_reader(text: str) -> None:
    assert not TOPOLOGY.is_valid(loads(text).data)
    with pytest.raises(UsageError):
        load_topology(text)


@pytest.mark.parametrize("text", RIGHT_TOPOLOGIES.values(), ids=RIGHT_TOPOLOGIES)
def test_a_right_topology_is_accepted_by_the_schema_and_by_the_reader(text: str) -> None:
    assert [error.message for error in TOPOLOGY.iter_errors(loads(text).data)] == []
    load_topology(text)


RIGHT: dict[str, Any] = {"topology": "smolcluster", "algorithm": {"name": "edp"}, "workload": {"name": "mnist_mlp"}}
CRASH = {"kind": "crash", "node": "pi4", "at": "1 s"}

WRONG_EXPERIMENTS: dict[str, dict[str, Any]] = {
    "a misspelt key": {"algoritm": "edp"},
    "no such algorithm": {"algorithm": {"name": "epd"}},
    "no such workload": {"workload": "minst"},
    "a setting of another algorithm": {"algorithm": {"name": "edp", "interval": 4}},
    "a setting that is text": {"algorithm": {"name": "edp", "pull_interval": "4"}},
    "a setting out of range": {"algorithm": {"name": "edp", "pull_interval": 0}},
    "an unknown compression": {"algorithm": {"name": "edp", "compression": "zip"}},
    "an overlay of no kind": {"algorithm": {"name": "d_psgd", "overlay": "circle"}},
    "a compression without its setting": {"algorithm": {"name": "edp", "compression": {"kind": "top_k", "share": 1}}},
    "a name and a path": {"algorithm": {"name": "edp", "path": "a.py:f"}},
    "a path without a function": {"algorithm": {"path": "a.py"}},
    "steps and epochs": {"stop": {"steps": 1, "epochs": 1}},
    "no steps": {"stop": {"steps": 0}},
    "a negative seed": {"seed": -1},
    "an unknown backend": {"backend": "socket"},
    "a fault of no kind": {"faults": [{**CRASH, "kind": "crush"}]},
    "a fault without its node": {"faults": [{"kind": "crash", "at": "1 s"}]},
    "a fault at a number": {"faults": [{**CRASH, "at": 1}]},
    "a topology with a misspelt key": {"topology": {"generator": "star", "workers": 3, "bandwith": "1 Gbps"}},
}
RIGHT_EXPERIMENTS: dict[str, dict[str, Any]] = {
    "names alone": {"algorithm": "edp", "workload": "quadratic"},
    "settings": {"algorithm": {"name": "edp", "pull_interval": 2, "compression": {"kind": "top_k", "fraction": 0.1}}},
    "a short compression": {"algorithm": {"name": "edp", "compression": "int8"}},
    "an overlay": {"algorithm": {"name": "d_psgd", "overlay": {"kind": "random_regular", "degree": 2}}},
    "batches by node": {
        "algorithm": "sync_ps",
        "workload": {"name": "mnist_mlp", "batch_size": {"total": 160, "by": "device"}},
    },
    "a fault": {"faults": [CRASH, {"kind": "slow", "node": "pi5", "factor": 3, "at": "1 s", "for": "2 s"}]},
    "a generated topology": {"topology": {"generator": "star", "workers": 3, "device": {"flops": "1 TFLOP/s"}}},
    "the rest": {"stop": {"epochs": 0.5, "time": "3 s"}, "seed": 3, "checkpoint": {"every": 5}, "observe": None},
}


@pytest.mark.parametrize("keys", WRONG_EXPERIMENTS.values(), ids=WRONG_EXPERIMENTS)
def test_a_wrong_experiment_is_refused_by_the_schema_and_by_the_reader(keys: dict[str, Any]) -> None:
    assert not EXPERIMENT.is_valid(RIGHT | keys)
    with pytest.raises(UsageError):
        read_experiment(RIGHT | keys)


@pytest.mark.parametrize("keys", RIGHT_EXPERIMENTS.values(), ids=RIGHT_EXPERIMENTS)
def test_a_right_experiment_is_accepted_by_the_schema_and_by_the_reader(keys: dict[str, Any]) -> None:
    assert [error.message for error in EXPERIMENT.iter_errors(RIGHT | keys)] == []
    read_experiment(RIGHT | keys)


@pytest.mark.parametrize(
    ("block", "name"), [("algorithm", n) for n in ALGORITHMS] + [("workload", n) for n in WORKLOADS]
)
def test_every_algorithm_and_workload_is_accepted_with_its_defaults_and_with_no_other_setting(
    block: str, name: str
) -> None:
    function = {**ALGORITHMS, **WORKLOADS}[name]
    defaults = json.loads(json.dumps({s.name: s.default for s in settings_of(function) if not s.required}))
    required = {s.name: 1 for s in settings_of(function) if s.required}
    given = RIGHT | {block: {"name": name} | defaults | required}
    assert [error.message for error in EXPERIMENT.iter_errors(given)] == []
    assert not EXPERIMENT.is_valid(RIGHT | {block: {"name": name, "no_such_setting": 1} | required})


def test_the_command_prints_what_is_shipped(command: Any) -> None:
    for kind in schemas.MAKERS:
        code, out, err = command("schema", kind)
        assert (code, err) == (0, "")
        assert out == (schemas.FOLDER / f"{kind}.json").read_text(encoding="utf-8")
    code, out, err = command("schema", "topologies")
    assert (code, out) == (2, "")
    assert "did you mean 'topology'" in err
