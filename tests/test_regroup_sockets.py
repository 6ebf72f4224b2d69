"""On real nodes a group goes on without a process that was killed, as the simulator's does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import simcluster
from simcluster.results.folder import Run
from tests.test_regroup import star, weights_of

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


def test_after_a_sigkill_the_rest_ends_with_the_weights_of_a_smaller_world_that_resumed(tmp_path: Path) -> None:
    # Of the first rank, so that another one evaluates and hands in the weights; it is killed while it trains.
    crash = {"kind": "crash", "node": "n0", "at": "150 ms"}
    found = run(tmp_path / "real", size=3, backend="sockets", faults=[crash])
    (formed,) = found.summary["regroups"]
    assert (formed["lost"], formed["members"]) == (["n0"], ["n1", "n2"])
    assert list(found.summary["lost"]) == ["n0"]
    assert {weights_of(found)[name] for name in ("n1", "n2")} == {found.summary["weights_sha256"]}
    step = formed["step"]
    if step == 0:  # a slow machine: all of it is the smaller world's
        expected = run(tmp_path / "two", size=2, backend="sim")
    else:
        kept = run(tmp_path / "three", size=3, backend="sim", checkpoint={"every": step}, stop={"steps": step + 1})
        longer = {"stop.steps": STEPS}
        expected = simcluster.resume(
            kept, topology=star(2), step=step, overrides=longer, out=tmp_path / "two", report=False
        )
    assert found.summary["weights_sha256"] == expected.summary["weights_sha256"]
    assert found.summary["loss"] == expected.summary["loss"]
