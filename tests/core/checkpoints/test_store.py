"""The folder of checkpoints: whatever stops the writer, and whenever, the last complete one is there."""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from simcluster.checkpoints.gather import Gather
from simcluster.checkpoints.manifest import Manifest, RankEntry, decode_manifest, encode_manifest
from simcluster.checkpoints.shard import Shard
from simcluster.checkpoints.store import Best, Store, checkpoints, latest
from simcluster.errors import CheckpointError, CheckpointWarning
from simcluster.paths import inside

CONFIG = {"algorithm": {"name": "all_reduce_dp"}, "workload": {"name": "quadratic"}, "seed": 0, "numerics": "real"}


def shard(step: int, rank: int = 0, *, loose: bool = False, **judged: float) -> Shard:
    """Weights that both ranks have alike, and an optimizer of its own."""
    files = {"model": f"weights {step}".encode() * 50, "optimizer": f"optimizer {step} of {rank}".encode() * 50}
    return Shard(rank, step, step, float(step), loose, "{}", files, judged)


def gather(
    folder: Path, run: str = "a", keep: int = 2, best: Best | None = None, spared: Container[int] = ()
) -> Gather:
    return Gather(Store(folder, run, keep=keep, best=best), CONFIG, 2, spared=spared)


def keep(into: Gather, step: int, **judged: float) -> None:
    into.add(shard(step, 0, **judged))
    into.add(shard(step, 1))


def steps(folder: Path) -> list[int]:
    return [one.step for one in checkpoints(folder)]


def files(folder: Path) -> set[str]:
    return {path.name for path in (folder / "shards").iterdir()}


def test_a_checkpoint_is_complete_when_all_ranks_have_handed_in_and_what_is_alike_is_there_once(tmp_path: Path) -> None:
    into = gather(tmp_path)
    into.add(shard(10, 1))
    assert steps(tmp_path) == []
    into.add(shard(10, 0))
    assert steps(tmp_path) == [10]
    assert len(files(tmp_path)) == 3  # weights once, two optimizers
    found = latest(tmp_path)
    assert [found.read(entry.files["optimizer"]) for entry in found.manifest.ranks] == [
        shard(10, rank).files["optimizer"] for rank in (0, 1)
    ]
    assert found.manifest.cut == "step"


def test_the_newest_and_the_best_stay_and_nothing_else(tmp_path: Path) -> None:
    into = gather(tmp_path, keep=2, best="loss")
    for step, loss in ((10, 3.0), (20, 1.0), (30, 2.0), (40, 2.5), (50, 2.2)):
        keep(into, step, loss=loss)
    assert steps(tmp_path) == [20, 40, 50]
    assert len(files(tmp_path)) == 3 * 3
    keep(into, 60, loss=0.5)  # a better one takes its place
    assert steps(tmp_path) == [50, 60]
    assert latest(tmp_path).judged == {"loss": 0.5}


def test_what_had_happened_before_a_run_was_resumed_has_happened_after_an_attempt_that_ended_sooner(
    tmp_path: Path,
) -> None:
    into = Gather(Store(tmp_path, "a", keep=2, best=None), CONFIG, 2, happened_s=5.0, happened=["first"])
    for time_s, told_s, told in ((3.0, 5.0, ["first", "second"]), (7.0, 7.0, ["first", "second", "third"])):
        into.attempt_ended(time_s, told[1:])
        keep(into, int(time_s))
        assert latest(tmp_path).manifest.happened_s == told_s
        assert latest(tmp_path).manifest.happened == into.summary()["happened"] == told


class Killed(BaseException):
    """In place of a process that is no more."""


def killed_at(number: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Every call of the operating system that changes a file counts; the *number*-th is cut short, and the last."""
    done = 0

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal done
            done += 1
            if done > number:
                raise Killed
            if done == number and name == "write":
                return real(args[0], bytes(args[1])[: len(args[1]) // 2])
            return real(*args, **kwargs)

        return call

    for name in ("open", "write", "fsync", "replace", "unlink"):
        monkeypatch.setattr(inside.os, name, counted(name, getattr(os, name)))
    return lambda: done


@pytest.mark.slow
def test_a_kill_at_any_call_of_the_system_leaves_a_complete_checkpoint_and_no_litter_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = calls = 0
    while calls >= number:
        number += 1
        folder = tmp_path / str(number)
        into = gather(folder, keep=1)
        keep(into, 10)
        with monkeypatch.context() as patch:
            count = killed_at(number, patch)
            with suppress(Killed):
                keep(into, 20)
            calls = count()
        assert latest(folder).step in (10, 20), number
        keep(gather(folder, keep=1), 30)  # whoever comes next takes away what was half done
        assert steps(folder) == [30]
        named = {f.sha256 for one in checkpoints(folder) for r in one.manifest.ranks for f in r.files.values()}
        assert {Path(name).stem for name in files(folder)} == named, number
        assert not list(folder.rglob(".partial-*"))
    # Two shards share their weights: three files and a manifest, each opened, written, synced, renamed; two folders
    # synced; what the first one had is taken away: three files and its manifest.
    assert number > 4 * 4 + 2 * 2 + 4


class FullDisk:
    """The module os of a disk that has room for one more file."""

    def __init__(self, code: int) -> None:
        self._code = code
        self._room: Iterator[bool] = iter([True])

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, number: int, content: bytes) -> int:
        if not next(self._room, False):
            raise OSError(self._code, os.strerror(self._code))
        return os.write(number, content)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_full_or_broken_disk_is_a_warning_and_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    into = gather(tmp_path)
    keep(into, 10)
    before = files(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(inside, "os", FullDisk(code))
        with pytest.warns(CheckpointWarning, match="no checkpoint of step 20"):
            into.add(shard(20, 0))
        into.add(shard(20, 1))  # the other half is not even tried
    assert steps(tmp_path) == [10]
    assert files(tmp_path) == before
    assert into.summary()["failed"] == [{"step": 20, "error": f"OSError: {os.strerror(code)}"}]
    keep(into, 30)  # there is room again
    assert steps(tmp_path) == [10, 30]


def test_another_run_in_the_folder_is_replaced_when_this_one_has_a_complete_checkpoint(tmp_path: Path) -> None:
    keep(gather(tmp_path, "earlier"), 100)
    into = gather(tmp_path, "now")
    into.add(shard(10, 0))
    assert steps(tmp_path) == [100]
    into.add(shard(10, 1))
    assert steps(tmp_path) == [10]
    Store(tmp_path, "a third").drop_others()
    assert (steps(tmp_path), files(tmp_path)) == ([], set())


def test_ranks_that_do_not_go_in_step_are_kept_with_rank_0(tmp_path: Path) -> None:
    into = gather(tmp_path)
    into.add(shard(10, 0, loose=True))
    assert steps(tmp_path) == []  # nobody knows anything of rank 1
    into.add(shard(4, 1, loose=True))
    into.add(shard(8, 1, loose=True))
    into.add(shard(20, 0, loose=True))
    found = checkpoints(tmp_path)
    assert [[entry.step for entry in one.manifest.ranks] for one in found] == [[10, 4], [20, 8]]
    assert {one.manifest.cut for one in found} == {"loose"}


def test_where_the_others_go_on_without_a_lost_rank_there_is_what_it_handed_in_last(tmp_path: Path) -> None:
    into = gather(tmp_path, spared={1})
    keep(into, 10)
    into.add(shard(20, 0))
    assert steps(tmp_path) == [10]
    into.add(shard(30, 0), lost={1})
    assert steps(tmp_path) == [10]  # rank 0 may have ended the step that rank 1 died in, and fail in the next
    into.add(shard(40, 0), lost={1})
    found = latest(tmp_path)
    assert (found.manifest.cut, [entry.step for entry in found.manifest.ranks]) == ("filled", [40, 10])


@pytest.mark.parametrize("spared", [(), (0,)])
def test_no_checkpoint_has_an_older_part_of_a_rank_that_is_not_spared(spared: tuple[int, ...], tmp_path: Path) -> None:
    into = gather(tmp_path, keep=1, spared=spared)
    keep(into, 10)
    for step in (20, 30, 40, 50):
        into.add(shard(step, 0), lost={1})
    assert steps(tmp_path) == [10]


def test_a_manifest_that_was_changed_is_none(tmp_path: Path) -> None:
    keep(gather(tmp_path), 10)
    keep(gather(tmp_path), 20)
    path = tmp_path / "step-00000020.json"
    content = path.read_text()
    path.write_text(content.replace('"step": 20', '"step": 21', 1))
    with pytest.warns(CheckpointWarning, match="digest that does not match its content"):
        assert latest(tmp_path).step == 10
    path.write_text(content[: len(content) // 2])
    with pytest.warns(CheckpointWarning, match="passed over"):
        assert latest(tmp_path).step == 10
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(CheckpointError, match="steps: 10, expected a complete checkpoint of step 20"):
            latest(tmp_path, 20)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda manifest: setattr(manifest, "format", 2), "another version"),
        (lambda manifest: setattr(manifest, "world_size", 3), "2 ranks, expected each of 3"),
        (
            lambda manifest: setattr(manifest.ranks[1], "batches", 10**15),
            "batches of rank 1, expected at most 110000",
        ),
        (lambda manifest: setattr(manifest.ranks[1], "step", 9), "ranks at steps \\[9, 10\\], expected all at step 10"),
    ],
)
def test_a_manifest_says_what_it_must(change: Callable[[Manifest], None], words: str) -> None:
    ranks = [RankEntry(rank, 10, 10, 1.0, "{}", {}) for rank in (0, 1)]
    manifest = Manifest(
        run="a", sequence=1, step=10, world_size=2, time_s=1.0, cut="step", config_sha256="", config={}, judged={},
        ranks=ranks,
    )  # fmt: skip
    assert decode_manifest(encode_manifest(manifest), "it") == manifest
    change(manifest)
    with pytest.raises(CheckpointError, match=words):
        decode_manifest(encode_manifest(manifest), "it")


def test_a_run_without_checkpoints_is_refused_with_how_to_have_some(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"found no checkpoints, expected a run with checkpoints, which"):
        latest(tmp_path)
