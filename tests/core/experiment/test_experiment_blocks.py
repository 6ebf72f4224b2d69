"""Blocks that name something, and what is said when they are wrong: the option, the signature, the nearest name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simcluster.experiment import read_experiment
from simcluster.workloads import Workload
from tests.core.experiment.test_experiment import GOOD, problems_of
from tests.core.workloads.models.test_idx import write_mnist

OWN = """
async def anything(node, replica, **settings): ...
async def some(node, replica, interval=3): ...
async def none(node, replica): ...
def workload(points=10): ...
def any_workload(**settings): ...
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("nodes.n1.devic", "x", "overrides topology.nodes.n1.devic: unknown key 'devic'"),
        ("nodes.n1.device", "x86", "topology.nodes.n1.device (set by overrides): found 'x86'"),
        ("links.n1-sw.bandwidth", 100, "topology.links.n1-sw.bandwidth (set by overrides): found 100 without a unit"),
        ("foo", 1, "overrides topology.foo: unknown key 'foo'"),
    ],
)
def test_a_wrong_override_of_a_topology_points_at_the_option_not_at_a_file(
    key: str, value: object, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "good.yaml"
    path.write_text("{topology: star-8-gigabit, algorithm: edp, workload: quadratic, stop: {steps: 1}}")
    (problem,) = problems_of(path, overrides={f"topology.{key}": value})
    assert problem.startswith(words)


def test_the_name_of_a_topology_that_is_wrong_points_at_whoever_gave_it(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("algorithm: edp\ntopology: smolclster\nworkload: quadratic\nstop: {steps: 1}\n")
    (problem,) = problems_of(path)
    assert problem.startswith(f"{path}:2:11: topology: found 'smolclster', no such file")
    (problem,) = problems_of(path, topology="nowhere")
    assert problem.startswith("topology (set by topology): found 'nowhere', no such file")


def test_what_is_wrong_inside_a_topology_that_an_experiment_holds_has_its_whole_key() -> None:
    inline = {"name": "one", "nodes": {"a": {"device": "x86-lapto"}}, "links": []}
    (problem,) = problems_of({**GOOD, "topology": inline})
    assert problem.startswith("topology.nodes.a.device: found 'x86-lapto'")


@pytest.mark.parametrize(
    ("block", "function", "words"),
    [
        ("algorithm", "anything", "anything with the argument **settings, expected each setting by its name"),
        (
            "algorithm",
            "some",
            "found a positional argument, expected a keyword-only one: write `*, interval` in the signature of some",
        ),
        ("algorithm", "none", "unknown setting of none; expected none: it has no settings"),
        ("workload", "workload", "unknown setting of workload; expected one of dropout, precision, scale, schedule"),
        ("workload", "any_workload", "any_workload with the argument **settings"),
    ],
)
def test_settings_that_a_signature_cannot_take_are_told_how_it_could(
    own: Path, block: str, function: str, words: str
) -> None:
    found = problems_of({**GOOD, block: {"path": f"{own}:{function}", "interval": 5}})
    assert any(words in problem for problem in found), found


def test_what_is_no_file_name_or_mapping_is_refused_in_a_sentence() -> None:
    assert problems_of(3) == ["experiment: found 3, expected a file, the name of a shipped one, or a mapping of keys"]
    assert problems_of(GOOD, topology=3)[0].startswith("topology (set by topology): found 3, expected the name or")


def test_a_workload_of_ours_is_made_once_and_one_that_reads_files_every_time(tmp_path: Path) -> None:
    def workload(**block: Any) -> Workload:
        return read_experiment({**GOOD, "workload": {"name": "mnist_mlp", "batch_size": 2, **block}}).workload

    first = workload(hidden=8)
    assert workload(hidden=8) is first
    assert workload(hidden=9) is not first
    write_mnist(tmp_path, train=20, test=20)
    files = workload(data=str(tmp_path))
    assert workload(data=str(tmp_path)) is not files
