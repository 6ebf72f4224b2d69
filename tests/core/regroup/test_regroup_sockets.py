"""On real nodes a group goes on without a process that was killed, as the simulator's does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.results import Run
from tests.core.regroup.test_regroup import star, weights_of

STEPS = 400


def run(folder: Path, *, size: int, backend: str, **keys: Any) -> Run:
    experiment = {
        "topology": star(size),
        "algorithm": "all_reduce_dp",
        "workload": {"name": "quadratic", "batch_size": 8},
        "stop": {"steps": STEPS},
        "evaluate_every": STEPS,
        **keys,
    }
    return simcluster.run(experiment, backend=backend, out=folder, report=False)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Three processes, the first of which, which evaluates, is killed while it trains."""
    crash = {"kind": "crash", "node": "n0", "at": "150 ms"}
    return run(tmp_path_factory.mktemp("killed") / "run", size=3, backend="sockets", faults=[crash])


@pytest.mark.slow
def test_after_a_sigkill_the_rest_ends_with_the_weights_of_a_smaller_world_that_resumed(
    killed: Run, tmp_path: Path
) -> None:
    (formed,) = killed.summary["regroups"]
    assert (formed["lost"], formed["members"]) == (["n0"], ["n1", "n2"])
    assert list(killed.summary["lost"]) == ["n0"]
    assert {weights_of(killed)[name] for name in ("n1", "n2")} == {killed.summary["weights_sha256"]}
    step = formed["step"]
    # what it had done is known from the others, whether or not it lived to say so
    assert killed.summary["samples"]["used"] == 8 * (3 * step + 2 * (STEPS - step))
    if step == 0:  # a slow machine: all of it is the smaller world's
        expected = run(tmp_path / "two", size=2, backend="sim")
    else:
        kept = run(tmp_path / "three", size=3, backend="sim", checkpoint={"every": step}, stop={"steps": step + 1})
        longer = {"stop.steps": STEPS}
        expected = simcluster.resume(
            kept, topology=star(2), step=step, overrides=longer, out=tmp_path / "two", report=False
        )
    assert killed.summary["weights_sha256"] == expected.summary["weights_sha256"]
    assert killed.summary["loss"] == expected.summary["loss"]


@pytest.mark.slow
def test_its_replay_goes_the_same_way_to_the_same_bits(killed: Run, tmp_path: Path) -> None:
    replayed = simcluster.replay(killed.folder, out=tmp_path / "replay")
    assert replayed.weights == dict.fromkeys(("n1", "n2"), killed.summary["weights_sha256"])
