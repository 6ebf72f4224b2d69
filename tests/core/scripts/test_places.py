"""Ranks are where torchrun would have them: several on a machine, of a module, or started by the script itself."""

from __future__ import annotations

from pathlib import Path

import pytest

import simcluster
from simcluster.cli.torchrun import INSTEAD, torchrun
from simcluster.documents.script_code import files_of_script
from simcluster.errors import NodeFailed, UsageError
from simcluster.topology import load
from simcluster.topology.read.rank_places import RankPlace, rank_places
from tests.core.scripts.running import pair, printed, run_script

TRAIN = """
import argparse
import os
import random

import torch
import torch.distributed as dist

from .parts import width

parser = argparse.ArgumentParser()
parser.add_argument("--local-rank", type=int)
given = parser.parse_args()
dist.init_process_group("gloo", init_method="env://")
names = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
drawn = random.randrange(10**9), int(torch.randint(10**9, ()))
print(*(os.environ[name] for name in names), given.local_rank, width, *drawn)
"""

SPAWNING = """
import multiprocessing
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, size):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "12355"
    dist.init_process_group("gloo", init_method="file:///nowhere/store", rank=rank, world_size=size)
    total = torch.tensor([rank + 1])
    dist.all_reduce(total)
    print(sys.argv[1], rank, total.item(), flush=True)


class Worker(multiprocessing.Process):
    def __init__(self, rank):
        super().__init__()
        self.rank = rank

    def run(self):
        work(self.rank, 2)


if __name__ == "__main__":
    form, count = sys.argv[1], int(sys.argv[2])
    mp.set_start_method("spawn")
    if form == "spawn":
        context = mp.spawn(work, args=(count,), nprocs=count, join=False)
        while not context.join():
            pass
    else:
        make = {"loop": lambda rank: mp.Process(target=work, args=(rank, count)), "class": Worker}[form]
        processes = [make(rank) for rank in range(count)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0] * count
"""


def test_ranks_of_a_module_share_machines_and_get_what_they_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "parts.py").write_text("width = 7\n")
    (package / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    block = {"module": "package.train", "nproc_per_node": 2, "pass_local_rank": True, "seed": 3}
    simcluster.run(script=block, topology=pair(), out=tmp_path / "run", report=False)
    lines = [printed(tmp_path / "run", node)[0].split() for node in ("a_0", "a_1", "b_0", "b_1")]
    assert [line[:7] for line in lines] == [
        ["0", "0", "2", "0", "2", "0", "7"],
        ["1", "1", "2", "0", "2", "1", "7"],
        ["2", "0", "2", "1", "2", "0", "7"],
        ["3", "1", "2", "1", "2", "1", "7"],
    ]
    assert len({tuple(line[7:]) for line in lines}) == 1, "one seed for all ranks, as `manual_seed(3)` in a script"
    assert {file.name for file in files_of_script(package / "train.py", "package.train")} == {
        "__init__.py", "parts.py", "train.py",
    }  # fmt: skip


def test_nodes_that_name_the_same_machine_share_it() -> None:
    topology = pair(nodes="abc") | {"machines": {"shelf": {"cores": 4}}}
    for node in "ac":
        topology["nodes"][node]["machine"] = "shelf"
    assert rank_places(load(topology)) == (RankPlace(0, 2, 0, 2), RankPlace(1, 2, 0, 1), RankPlace(0, 2, 1, 2))


@pytest.mark.slow
def test_ranks_that_a_script_starts_are_the_clusters_in_every_form(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SPAWNING)
    for form in ("spawn", "loop", "class"):
        run_script(tmp_path / "script.py", tmp_path / form, pair(), form, "2")
        found = [printed(tmp_path / form, node) for node in "ab"]
        assert found == [[f"{form} 0 3"], [f"{form} 1 3"]]
    for form in ("spawn", "loop"):
        with pytest.raises(NodeFailed, match=r"expected 2, |more than 2 processes"):
            run_script(tmp_path / "script.py", tmp_path / "wrong", pair(), form, "3")


def words_refused(*words: str) -> str:
    with pytest.raises(UsageError) as caught:
        torchrun(None, words=list(words))  # type: ignore[arg-type]
    return str(caught.value)


def test_other_options_of_torchrun_are_refused_by_name_with_what_to_use() -> None:
    told = words_refused("--standalone", "--rdzv_backend", "c10d", "--master-port=1", "train.py", "--tee", "3")
    for option in ("--standalone", "--rdzv_backend", "--master-port"):
        assert option in told
    assert "--tee" not in told, "what follows the script is the script's"
    for option, instead in INSTEAD.items():
        found = words_refused(option, "train.py")
        assert found.startswith(f"{option}: found an option for real nodes, expected")
        assert found.endswith(instead.rpartition(" ")[2])
    assert "a number of at least 1" in str(words_refused_number())


def words_refused_number() -> UsageError:
    with pytest.raises(UsageError) as caught:
        torchrun(None, words=["train.py"], nproc_per_node="auto")  # type: ignore[arg-type]
    return caught.value
