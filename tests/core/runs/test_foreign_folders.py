"""A run folder from somewhere else: nothing outside it is touched, and damage is reported in one sentence."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import simcluster
from simcluster.checkpoints.manifest import decode_manifest, encode_manifest
from simcluster.checkpoints.store import checkpoints
from simcluster.errors import CheckpointWarning, UsageError
from simcluster.experiment.checkpointing import begin_with, last_complete
from simcluster.experiment.read.read import read_experiment
from simcluster.lab.reports.report import render
from simcluster.results import compare, load_run
from simcluster.runs.destination import check_folder
from tests.core.checkpoints.test_restored import SLOW_STAR
from tools.damage import ODD, contents, places

EXPERIMENT: dict[str, Any] = {
    "name": "foreign",
    "topology": SLOW_STAR,
    "algorithm": "all_reduce_dp",
    "workload": {"name": "quadratic", "batch_size": 8},
    "stop": {"steps": 4},
    "evaluate_every": 1000,
    "checkpoint": {"every": 2},
    "faults": [{"kind": "slow", "node": "n1", "at": "1 ms", "for": "1 ms", "factor": 2}],
}
LONG = {"stop.steps": 6}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("kept") / "run"
    simcluster.run(EXPERIMENT, out=out, report=False)
    return out


@pytest.fixture
def run(kept: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kept, tmp_path / "run"))


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """Another user's folder, with names that a store and the logs have, too; it stays as it is."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for name in ("thesis.tex", f"{'a' * 64}.safetensors", "step-00000002.json", "n0.log", ".partial-summary.json"):
        (folder / name).write_text("mine")
    before = contents(folder)
    yield folder
    assert contents(folder) == before


@pytest.mark.parametrize("place", ["checkpoints", "checkpoints/shards", "logs"])
def test_a_link_to_another_folder_is_refused_and_not_followed(place: str, run: Path, elsewhere: Path) -> None:
    shutil.rmtree(run / place, ignore_errors=True)
    (run / place).symlink_to(elsewhere)
    with pytest.raises(UsageError):
        simcluster.run(EXPERIMENT, out=run, report=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)  # of checkpoints that cannot be read
        with pytest.raises(UsageError):
            simcluster.resume(run, overrides=LONG, report=False)


@pytest.mark.parametrize(
    "name", ["summary.json", ".partial-config.yaml", "report.html", "checkpoints/final.safetensors"]
)
def test_a_link_to_a_file_is_refused_and_not_followed(name: str, run: Path, elsewhere: Path) -> None:
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(elsewhere / "thesis.tex")
    with pytest.raises(UsageError):
        simcluster.run(EXPERIMENT, out=run, report=False)


def test_a_link_that_appears_while_a_run_goes_on_is_not_followed(
    run: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = sys.modules["simcluster.experiment.execute"]
    checked = check_folder

    def swap(folder: Path) -> None:
        checked(folder)
        shutil.rmtree(run / "checkpoints")
        (run / "checkpoints").symlink_to(elsewhere)

    monkeypatch.setattr(running, "check_folder", swap)
    with pytest.raises((simcluster.RunError, UsageError)), warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)
        simcluster.run(EXPERIMENT, out=run, report=False)


def test_only_files_that_a_store_writes_are_removed(run: Path) -> None:
    shards = run / "checkpoints" / "shards"
    notes = [run / "checkpoints" / "notes.txt", shards / "notes.txt", shards / "x.safetensors", run / "logs" / "notes"]
    (run / "logs").mkdir()
    for path in notes:
        path.write_text("mine")
    unused = shards / f"{'b' * 64}.safetensors"
    unused.write_text("of an earlier run")
    simcluster.run(EXPERIMENT, out=run, report=False)
    assert all(path.read_text() == "mine" for path in notes)
    assert not unused.exists()


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("x" * 300, "a name of 300 bytes"),
        ("/".join(["abc"] * 1200), "a path of"),
        ("a\0b", "null character"),
        ("~no-such-user-at-all/x", "home folder"),
        ("/proc/x", "cannot be written"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused_before_the_run(out: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        simcluster.run(EXPERIMENT, out=out, report=False)


def test_a_tilde_is_the_home_folder_wherever_something_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert simcluster.run(EXPERIMENT, out="~/a", report=False).folder == tmp_path / "a"
    assert simcluster.resume("~/a", overrides=LONG, out="~/b", report=False).folder == tmp_path / "b"
    swept = simcluster.sweep(EXPERIMENT, {"seed": [1]}, out="~/c", report=False, jobs=1)
    assert swept.folder == tmp_path / "c"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]


# What a folder says

SUMMARIES: list[dict[str, Any]] = [
    {"nodes": {}}, {"nodes": []}, {"links": None}, {"steps": "x"}, {"elapsed_s": 1e308}, {"elapsed_s": "9"},
    {"lost": [1]}, {"faults": [1]}, {"regroups": [{}]}, {"versions": None}, {"name": None}, {"status": "failed"},
    {"error": None, "status": "failed"}, {"seed": None}, {"trace_sha256": 3},
]  # fmt: skip


def changed(run: Path, name: str, change: dict[str, Any]) -> None:
    path = run / name
    path.write_text(json.dumps(json.loads(path.read_text()) | change))


def look(run: Path) -> None:
    """Read a run as report, compare, figure and export do."""
    found = load_run(run)
    render(found, read_experiment(found.config).topology)
    compare(found, found)
    _ = found.metrics, found.samples, found.spans, found.rests


@pytest.mark.parametrize("change", SUMMARIES, ids=str)
def test_a_damaged_summary_is_named_by_its_field(change: dict[str, Any], run: Path) -> None:
    changed(run, "summary.json", change)
    field = "error" if "status" in change else next(iter(change))
    with pytest.raises(UsageError, match=rf"summary\.json.*\$\.{field}"):
        load_run(run)


@pytest.mark.parametrize("name", ["summary.json", "trace.json"])
@pytest.mark.parametrize(
    "text", ["{}", "[" * 100_000 + "]" * 100_000, "null", '{"traceEvents": [{"ph": "X", "cat": "send"}]}']
)
def test_a_damaged_file_is_named(name: str, text: str, run: Path) -> None:
    (run / name).write_text(text)
    with pytest.raises(UsageError, match=name):
        look(run)


def test_a_config_of_aliases_without_end_is_refused(run: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    (run / "config.yaml").write_text("\n".join(lines))
    with pytest.raises(UsageError, match=r"config\.yaml"):
        look(run)


def forged(run: Path, change: dict[str, Any], *, step: int = 2) -> Path:
    """A manifest that says *change* of itself or of its first rank, with a digest that fits."""
    path = run / "checkpoints" / f"step-{step:08d}.json"
    manifest = decode_manifest(path.read_bytes(), "it")
    for key, value in change.items():
        setattr(manifest if hasattr(manifest, key) else manifest.ranks[0], key, value)
    path.write_bytes(encode_manifest(manifest))
    for other in (run / "checkpoints").glob("step-*.json"):
        if other != path:
            other.unlink()
    (run / "summary.json").unlink(missing_ok=True)
    return path


@pytest.mark.parametrize(
    "change",
    [
        {"world_size": 1_000_000_000}, {"step": -1}, {"trees": "no json"}, {"trees": "[" * 5000}, {"trees": "{}"},
        {"trees": '{"model": 3, "optimizer": 3}'}, {"batches": 1 << 60}, {"time_s": 1e300}, {"config": {}},
        {"config": {"algorithm": 3}}, {"cut": "filled"}, {"files": {}},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::simcluster.errors.CheckpointWarning")
def test_a_forged_manifest_ends_before_anything_is_written(change: dict[str, Any], run: Path) -> None:
    if change == {"cut": "filled"}:
        change = {"cut": "filled", "step": 4}
    forged(run, change)
    before = contents(run)
    with pytest.raises(UsageError):
        simcluster.resume(run, report=False)
    assert contents(run) == before


@pytest.mark.filterwarnings("ignore::simcluster.errors.CheckpointWarning")
def test_a_shard_that_is_no_safetensors_ends_before_anything_is_written(run: Path) -> None:
    content = b"no safetensors"
    digest = hashlib.sha256(content).hexdigest()
    (run / "checkpoints" / "shards" / f"{digest}.safetensors").write_bytes(content)
    manifest = checkpoints(run)[0].manifest
    forged(run, {"files": {"model": type(manifest.ranks[0].files["model"])(digest, len(content))}})
    before = contents(run)
    with pytest.raises(UsageError, match="rank 0"):
        simcluster.resume(run, report=False)
    assert contents(run) == before


@pytest.mark.filterwarnings("ignore::simcluster.errors.CheckpointWarning")
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_a_manifest_says_it_is_refused_in_words(data: st.DataObject, run: Path) -> None:
    path = run / "checkpoints" / "step-00000002.json"
    original = path.read_bytes()
    document = json.loads(original)
    del document["sha256"]
    place, key = data.draw(st.sampled_from(places(document)))
    if data.draw(st.booleans()):
        del place[key]
    else:
        place[key] = data.draw(st.sampled_from(ODD))
    document["sha256"] = hashlib.sha256(json.dumps(document, separators=(",", ":")).encode()).hexdigest()
    path.write_text(json.dumps(document))
    try:
        found = last_complete(run, 2)
        begin_with(found, read_experiment(found.manifest.config))
    except UsageError:
        pass  # it says what is wrong; any other error ends the test
    finally:
        path.write_bytes(original)
