"""A rank finds what it would find under torchrun: variables, arguments, paths, threads and seeds."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch.distributed.run

from simcluster.scripts import rank_process
from tests.core.scripts.running import pair, run_script

SCRIPT = Path(__file__).with_name("launched.py")
OWN = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"}
"""Variables that are others for each launcher and each run."""
UNUSED = {"TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE"}
"""Variables for the launcher's own store and handlers, which ranks of a cluster do not have."""


def found_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads((folder / f"found{rank}").read_text()) for rank in range(2)]


def _launch(folder: Path) -> None:
    """Be torchrun, in a process that has loaded torch."""
    os.environ.pop("OMP_NUM_THREADS", None)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    torch.distributed.run.main(["--standalone", "--nproc-per-node=2", str(SCRIPT), str(folder)])


@pytest.mark.slow
def test_a_rank_finds_what_torchrun_gives_it(tmp_path: Path) -> None:
    real, simulated = tmp_path / "real", tmp_path / "simulated"
    real.mkdir()
    simulated.mkdir()
    with rank_process._without_main():
        launcher = rank_process._context(is_simulated=True).Process(target=_launch, args=(real,))
        launcher.start()
    launcher.join()
    assert launcher.exitcode == 0
    topology = pair(nodes="a") | {"launch": {"nproc_per_node": 2}}
    run_script(SCRIPT, tmp_path / "run", topology, str(simulated))

    expected_of, found_of = found_in(real), found_in(simulated)
    drawn = [one.pop("drawn") for one in (*expected_of, *found_of)]
    assert all(len(set(numbers)) == 4 for numbers in zip(*drawn, strict=True)), "no process has a seed, nor another's"
    for rank, (expected, found) in enumerate(zip(expected_of, found_of, strict=True)):
        variables, ours = expected.pop("variables"), found.pop("variables")
        assert variables.keys() - ours.keys() <= UNUSED
        shared = ours.keys() & variables.keys() - OWN
        assert {name: ours[name] for name in shared} == {name: variables[name] for name in shared}
        assert expected.pop("argv") == [str(SCRIPT), str(real)]
        assert found.pop("argv") == [str(SCRIPT), str(simulated)]
        assert found == expected
        assert found["group"] == [rank, 2, "gloo", 3]
