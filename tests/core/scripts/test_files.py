"""A script reads where it was started, and writes to the folder of its run."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from simcluster.scripts.rank.script_files import ScriptFiles
from tests.core.scripts.running import pair, printed, run_script

SCRIPT = """
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    print(open("data/words.txt").read(), open("../beside.txt").read(), sorted(os.listdir("out")))
    os.makedirs("new/deep", exist_ok=True)
    torch.save({"step": 1}, "new/deep/state.pt")
    torch.save({"step": 2}, "out/state.pt")
    with open("data/words.txt", "a") as file:
        file.write(" and more")
dist.barrier()
print(torch.load("new/deep/state.pt"), torch.load("out/state.pt"), open("data/words.txt").read())
"""


@pytest.mark.slow
def test_what_a_script_writes_is_in_its_run_folder_and_nothing_else_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "project"
    for folder in ("data", "out"):
        (started / folder).mkdir(parents=True)
    (started / "data" / "words.txt").write_text("some words")
    (started / "out" / "old.txt").write_text("old")
    (tmp_path / "beside.txt").write_text("beside")
    (started / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(started)

    run_script(started / "train.py", tmp_path / "run", pair())
    assert printed(tmp_path / "run")[0] == "some words beside ['old.txt']"
    assert printed(tmp_path / "run", "b") == ["{'step': 1} {'step': 2} some words and more"]
    assert (started / "data" / "words.txt").read_text() == "some words"
    assert sorted(path.name for path in started.rglob("*") if path.is_file()) == ["old.txt", "train.py", "words.txt"]
    files = tmp_path / "run" / "files" / started.relative_to("/")
    assert (files / "new" / "deep" / "state.pt").is_file()
    assert (files / "data" / "words.txt").read_text() == "some words and more"


@pytest.mark.slow
def test_ranks_that_begin_and_write_at_once_have_one_whole_tree(tmp_path: Path) -> None:
    started = tmp_path / "project"
    (started / "out" / "deep").mkdir(parents=True)
    names = ["1.txt", "2.txt"]
    for name in names:
        (started / "out" / "deep" / name).touch()
    ranks = threading.Barrier(4)

    def write_in(top: Path) -> list[str]:
        ranks.wait()
        files = ScriptFiles(top, started)
        files.prepare(files.folder / "out" / "deep" / "3.txt")
        assert not any(place.is_symlink() for place in (files.folder, *files.folder.parents))
        return sorted(path.name for path in (files.folder / "out" / "deep").iterdir())

    with ThreadPoolExecutor(4) as pool:
        for number in range(20):
            assert list(pool.map(write_in, [tmp_path / f"files{number}"] * 4)) == [names] * 4
