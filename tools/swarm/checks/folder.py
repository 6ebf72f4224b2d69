"""Invariants of a run's folder: it is complete, has no half-written file, and its files can be
read.
"""

from __future__ import annotations

from simcluster.checkpoints.store import SHARDS, checkpoints
from simcluster.errors import SimclusterError
from simcluster.paths.inside import PARTIAL
from simcluster.results import load_run
from simcluster.runs.folder import CHECKPOINTS, NEEDED
from tools.swarm.checks.outcome import Found
from tools.swarm.play import Played

CONFIGS_READ = 8
"""One seed in this many has its config.yaml read, since that takes half as long as a run."""


def check_folder(played: Played) -> Found:
    """Yield each broken invariant of the folder of *played*."""
    folder = played.folder
    missing = [name for name in NEEDED if not (folder / name).is_file()]
    if missing:
        yield "the folder is whole", f"{missing} are missing after {played.error!r}"
        return
    partial = [str(path.relative_to(folder)) for path in folder.rglob("*") if PARTIAL in path.name]
    if partial:
        yield "nothing is half-written", f"{partial}"
    try:
        run = load_run(folder)
        if played.record is not None and len(run.metrics) != sum(len(node.metrics) for node in played.record.nodes):
            yield "the folder is whole", "metrics.parquet has other rows than the run noted"
        run.trace  # noqa: B018  # reading the trace raises if it is damaged
        if played.case.seed % CONFIGS_READ == 0 and run.config["seed"] != played.case.document.get("seed", 0):
            yield "the folder is whole", "config.yaml is that of another run"
        if played.is_done and not run.weights():
            yield "the folder is whole", "no final weights"
    except SimclusterError as error:
        yield "the folder is whole", str(error)
    yield from _check_checkpoints(played)


def _check_checkpoints(played: Played) -> Found:
    if played.counted.unsafe:
        yield "on the disk before it is named", played.counted.unsafe[0]
    found = checkpoints(played.folder)
    named: set[str] = set()
    for checkpoint in found:
        try:
            checkpoint.check()
        except SimclusterError as error:
            yield "checkpoints can be read", str(error)
        named |= {f"{file.sha256}.safetensors" for rank in checkpoint.manifest.ranks for file in rank.files.values()}
    there = {path.name for path in (played.folder / CHECKPOINTS / SHARDS).glob("*")}
    if there != named:
        yield "no litter", f"{len(there - named)} files that no manifest names, {len(named - there)} missing"
    keep = (played.case.document.get("checkpoint") or {}).get("keep", 3)
    if len(found) > keep:
        yield "no litter", f"{len(found)} checkpoints, {keep} are to be kept"
