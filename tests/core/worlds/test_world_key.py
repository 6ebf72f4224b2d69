"""The key `world` of an experiment: read, refused, recorded and run again."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.errors import UsageError, WorldFailed
from simcluster.experiment.read.read import read_experiment
from simcluster.lab.explain.run import explain_run

STORM = """
import simpy


def storm(env, cluster, *, link: str, at_s: float = 0.002, for_s: float = 0.5):
    yield env.timeout(at_s)
    cluster.link(link).cut()
    yield env.timeout(for_s)
    cluster.link(link).heal()


def watches(env, cluster):
    while True:
        yield env.timeout(0.01)
        assert all(node.step <= 6 for node in cluster.nodes)


def breaks(env, cluster):
    yield env.timeout(0.002)
    raise ArithmeticError("the storm")
"""
EXPERIMENT: dict[str, Any] = {
    "topology": {
        "nodes": {name: {"device": "raspberry-pi-5"} for name in ("a", "b")},
        "links": [{"between": ["a", "b"], "bandwidth": "1 Gbps", "latency": "1 ms"}],
    },
    "algorithm": {"name": "all_reduce_dp"},
    "workload": {"name": "mnist_mlp"},
    "stop": {"steps": 6},
    "numerics": "none",
}  # fmt: skip


@pytest.fixture
def storm(tmp_path: Path) -> Path:
    file = tmp_path / "storm.py"
    file.write_text(STORM)
    return file


def run(folder: Path, **keys: Any) -> simcluster.Run:
    return simcluster.run({**EXPERIMENT, **keys}, out=folder, report=False)


def test_a_world_is_recorded_explained_and_repeated_from_the_runs_own_config(storm: Path, tmp_path: Path) -> None:
    plain = run(tmp_path / "plain")
    done = run(tmp_path / "run", world={"path": f"{storm}:storm", "link": "b-a"})
    (row,) = done.summary["faults"]
    assert (row["kind"], row["target"], row["plan"]["world"], row["spells_s"]) == (
        "cut", "a-b", "storm", [[0.002, 0.502]]
    )  # fmt: skip
    # The link is needed in every step: the run waits while it is cut, and no longer.
    assert 0.4 < done.summary["elapsed_s"] - plain.summary["elapsed_s"] <= 0.5 + 1e-9
    (told,) = [line for line in explain_run(done.folder).sentences() if line.startswith("It waited ")]
    assert told.endswith(" for link a-b, which the world storm had cut.")
    again = simcluster.run(done.folder / "config.yaml", out=tmp_path / "again", report=False)
    assert again.summary["trace_sha256"] == done.summary["trace_sha256"] != plain.summary["trace_sha256"]


def test_a_world_that_only_watches_changes_no_bit_and_several_compose(storm: Path, tmp_path: Path) -> None:
    def also(env: Any, cluster: Any, *, every_s: float) -> Any:
        while True:
            yield env.timeout(every_s)

    plain = run(tmp_path / "plain")
    watched = run(tmp_path / "watched", world=[f"{storm}:watches", partial(also, every_s=0.02)])
    assert watched.summary["trace_sha256"] == plain.summary["trace_sha256"]
    assert "faults" not in watched.summary


def test_module_state_of_worlds_is_shared_within_a_run_and_not_with_the_next(tmp_path: Path) -> None:
    world = "def {}(env, cluster):\n    STATE.append(1)\n    yield env.timeout(0.01)\n"
    (tmp_path / "w.py").write_text("STATE = []\n" + world.format("one") + world.format("two"))
    worlds = [f"{tmp_path / 'w.py'}:one", f"{tmp_path / 'w.py'}:two"]
    functions = [read_experiment({**EXPERIMENT, "world": [{"path": path} for path in worlds]}).worlds for _ in "ab"]
    (one, two), (again, _) = [[world.function.__globals__["STATE"] for world in read] for read in functions]
    assert one is two
    assert one is not again


def test_a_world_that_raises_fails_the_run_with_its_own_traceback(storm: Path, tmp_path: Path) -> None:
    with pytest.raises(WorldFailed, match=rf"the world failed at {storm}:20 \(breaks\): ArithmeticError: the storm"):
        run(tmp_path / "run", world=f"{storm}:breaks")
    assert (tmp_path / "run" / "traceback.txt").read_text().splitlines()[
        -2
    ].strip() == 'raise ArithmeticError("the storm")'


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def w(env, cluster):\n    return 1\n", r"w\.py:1: world: found w, which never yields, expected a generator"),
        ("async def w(env, cluster):\n    yield 1\n", r"w\.py:1: world: found w, which never yields"),
        ("def w(env):\n    yield 1\n", r"found w with 1 positional arguments, expected \(env, cluster, \*, settings"),
        ("def w(env, cluster, **more):\n    yield 1\n", r"the argument \*\*more, expected each setting by its name"),
        ("import datetime\ndef w(env, cluster):\n    yield 1\n", r"import: found datetime, expected env\.now"),
        ("import random\ndef w(env, cluster):\n    yield 1\n", r"w\.py:1:1: import: found random, expected cluster"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_world_is_refused_before_the_run(source: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text(source)
    with pytest.raises(UsageError, match=said):
        run(tmp_path / "run", world=f"{tmp_path / 'w.py'}:w")
    assert not (tmp_path / "run").exists()


def test_a_world_is_for_nodes_with_a_launcher_and_simpy_for_worlds(storm: Path, tmp_path: Path) -> None:
    world = {"path": f"{storm}:storm", "link": "a-b"}
    real = {**EXPERIMENT, "numerics": "real", "world": world}
    assert read_experiment(real, backend="sockets").worlds
    with pytest.raises(UsageError, match=r"found torch, expected sim or sockets with a world"):
        read_experiment(real, backend="torch")
    with pytest.raises(UsageError, match=r"max_restarts: found 2, expected 0 with a world"):
        simcluster.run({**EXPERIMENT, "world": world}, out=tmp_path / "run", options={"max_restarts": 2})
    with pytest.raises(UsageError, match=r"world\.link: .*nothing.*no default"):
        read_experiment({**EXPERIMENT, "world": {"path": f"{storm}:storm"}})
    begun = (event for event in ())
    with pytest.raises(UsageError, match=r"world: found a generator, expected the function itself: world=storm"):
        simcluster.run(EXPERIMENT, world=begun, out=tmp_path / "run")
    (tmp_path / "own.py").write_text("import simpy\nasync def own(node, replica):\n    pass\n")
    with pytest.raises(UsageError, match=r"found simpy, expected asyncio\.sleep .*a `world` that acts on the cluster"):
        read_experiment({**EXPERIMENT, "algorithm": {"path": f"{tmp_path / 'own.py'}:own"}})
