"""The run folder: written whole or not at all, read back to the bit, never over something foreign."""

from __future__ import annotations

import errno
import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from simcluster.errors import NodeFailed, UsageError
from simcluster.lab.reports.report import write_report
from simcluster.paths.spool import Spool
from simcluster.results import load_run
from simcluster.runs.destination import check_folder, default_name
from simcluster.runs.record import RunRecord
from simcluster.runs.recorder import Recorder
from simcluster.runs.write import FolderError, write_run
from simcluster.topology import load
from tests.support.made_up_runs import made_up_config, made_up_run, record_of, topology_document, two_nodes

TOPOLOGY = load(topology_document())
FILES = ["checkpoints", "config.yaml", "metrics.parquet", "summary.json", "trace.json"]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write(folder: Path, record: RunRecord | None = None, *, report: bool = False) -> None:
    write_run(folder, made_up_config(), TOPOLOGY, record or made_up_run(), "0.1.0")
    if report:
        write_report(load_run(folder), TOPOLOGY)


@contextmanager
def no_file_above(size_bytes: int) -> Iterator[None]:
    """The operating system refuses to let any file grow above *size_bytes*, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_run_folder_holds_what_the_design_says(tmp_path: Path) -> None:
    write(tmp_path / "run", report=True)
    assert names_in(tmp_path / "run") == sorted([*FILES, "report.html"])


def test_everything_reads_back_as_it_was(tmp_path: Path) -> None:
    record = made_up_run()
    write(tmp_path, record)
    run = load_run(tmp_path)
    assert run.config == made_up_config()
    assert run.summary["elapsed_s"] == record.elapsed_s
    assert run.summary["trace_sha256"] == record.trace_sha256
    rows = list(run.metrics.itertuples(index=False, name=None))
    assert sorted(rows) == sorted(tuple(metric) for node in record.nodes for metric in node.metrics)
    assert run.trace["otherData"]["algorithm"] == "sync_ps"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("name: q\n", "found something else in run/config.yaml, expected the topology of a run"),
        ("topology: {name: t, nodes: {a: {device: x8}}}\n", "run/config.yaml: topology, nodes.a.device: found 'x8'"),
    ],
)
def test_a_config_that_was_cut_is_named_by_whatever_needs_its_topology(
    config: str, words: str, command: Any, tmp_path: Path
) -> None:
    write(tmp_path / "run")
    (tmp_path / "run" / "config.yaml").write_text(config)
    for asked in (["report", "run"], ["explain", "run"], ["figure", "run", "topology", "--out", "a.html"]):
        code, out, err = command(*asked)
        assert (code, out) == (2, "")
        assert words in err
    assert names_in(tmp_path) == ["run"]


def test_the_folder_of_a_sweep_is_named_as_one(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text("experiment: x\naxes: []\n")
    with pytest.raises(UsageError) as refused:
        load_run(tmp_path)
    assert [str(problem) for problem in refused.value.problems] == [
        f"run: found the sweep {tmp_path}, expected the folder of a run, like one in its points"
    ]


def test_metrics_come_by_time_and_then_by_rank(tmp_path: Path) -> None:
    write(tmp_path)
    metrics = load_run(tmp_path).metrics
    assert list(metrics.columns) == ["time_s", "step", "node", "name", "value"]
    assert metrics["time_s"].is_monotonic_increasing
    assert list(metrics["node"][:5]) == TOPOLOGY.workers


def test_a_run_without_metrics_can_be_written_and_read(tmp_path: Path) -> None:
    a, b = Recorder(0, "a", lambda: 0.0), Recorder(1, "b", lambda: 0.0)
    topology = load(two_nodes())
    run = load_run(write_run(tmp_path, made_up_config(), topology, record_of(a, b, elapsed_s=0.0), "0.1.0"))
    assert len(run.metrics) == 0
    assert "neither loss nor accuracy" in write_report(run, topology).read_text()


def test_floats_keep_every_bit_and_what_json_lacks_becomes_null(tmp_path: Path) -> None:
    a, b = Recorder(0, "a", lambda: 0.1), Recorder(1, "b", lambda: 0.1)
    a.metric_at(0.1, 1, "eval_loss", float("nan"))
    a.metric_at(0.1, 1, "eval_accuracy", 0.1 + 0.2)
    record = record_of(a, b, elapsed_s=1 / 3)
    write_run(tmp_path, made_up_config(), load(two_nodes()), record, "0.1.0")

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    summary = json.loads((tmp_path / "summary.json").read_text(), parse_constant=refuse)
    assert summary["elapsed_s"] == 1 / 3
    assert summary["accuracy"] == 0.1 + 0.2
    assert summary["loss"] is None


def test_the_same_record_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, report=True)
    # The report names its folder, so it is not among them.
    for name in ("config.yaml", "summary.json", "trace.json", "metrics.parquet"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


@pytest.mark.parametrize(
    ("limit_bytes", "name"), [(500, "config.yaml"), (4_000, "metrics.parquet"), (50_000, "trace.json")]
)
def test_a_full_disk_is_named_and_leaves_no_half_file(tmp_path: Path, limit_bytes: int, name: str) -> None:
    """config.yaml takes 0.9 kB, metrics.parquet 7 kB, trace.json 170 kB: each limit stops another one."""
    folder = tmp_path / "run"
    with (
        no_file_above(limit_bytes),
        pytest.raises(FolderError, match=rf"cannot write {name} into the run folder") as caught,
    ):
        write(folder)
    assert caught.value.folder == str(folder)
    assert names_in(folder) == []
    write(folder)


def test_a_full_disk_leaves_the_earlier_run_as_it_was(tmp_path: Path) -> None:
    write(tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in FILES if name != "checkpoints"}
    with no_file_above(50_000), pytest.raises(FolderError):
        write(tmp_path, made_up_run(steps=60))
    assert names_in(tmp_path) == FILES
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_a_report_that_does_not_fit_leaves_the_run_and_no_report_of_another(tmp_path: Path) -> None:
    write(tmp_path, report=True)
    with no_file_above(1_000_000), pytest.raises(FolderError, match=r"report.html.*the rest of the run is there"):
        write(tmp_path, made_up_run(steps=60), report=True)
    assert names_in(tmp_path) == FILES
    assert load_run(tmp_path).summary["steps"] == 60


def test_a_folder_with_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    (tmp_path / "config.yaml").write_text("mine, too")
    with pytest.raises(UsageError, match=r"config.yaml, thesis.tex, expected a run folder"):
        write(tmp_path)
    assert (tmp_path / "config.yaml").read_text() == "mine, too"
    assert names_in(tmp_path) == ["config.yaml", "thesis.tex"]


def test_another_programs_summary_does_not_make_a_run_folder(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text('{"name": "something else"}')
    with pytest.raises(UsageError):
        check_folder(tmp_path)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(UsageError, match="the file"):
        check_folder(tmp_path / "run")


def test_an_earlier_run_is_replaced_and_notes_beside_it_stay(tmp_path: Path) -> None:
    write(tmp_path, report=True)
    (tmp_path / "notes.md").write_text("mine")
    write(tmp_path, made_up_run(steps=12))
    assert load_run(tmp_path).summary["steps"] == 12
    assert names_in(tmp_path) == sorted([*FILES, "notes.md"])


@pytest.mark.parametrize("part", ["config", "metrics", "trace", "spans", "checkpoints"])
def test_a_run_that_was_overwritten_does_not_give_the_other_ones_numbers(tmp_path: Path, part: str) -> None:
    write(tmp_path)
    run = load_run(tmp_path)
    write(tmp_path, made_up_run(stretch=2.0))  # the same experiment, at half the speed
    with pytest.raises(UsageError, match=r"with another run, expected .* give each a directory"):
        getattr(run, part)


def test_a_run_that_was_written_again_with_the_same_result_can_be_read_on(tmp_path: Path) -> None:
    write(tmp_path)
    run = load_run(tmp_path)
    write(tmp_path)
    assert run.metrics.equals(load_run(tmp_path).metrics)


def test_a_killed_write_does_not_block_the_folder(tmp_path: Path) -> None:
    (tmp_path / ".partial-trace.json").write_text("half")
    check_folder(tmp_path)
    write(tmp_path)
    assert names_in(tmp_path) == FILES


def test_checkpoints_are_those_of_the_last_run(tmp_path: Path) -> None:
    record = made_up_run()
    record.nodes[0].weights = Spool(b"first")
    write(tmp_path, record)
    assert (tmp_path / "checkpoints" / "final.safetensors").read_bytes() == b"first"
    write(tmp_path)
    assert names_in(tmp_path / "checkpoints") == []


def test_the_traceback_of_a_failed_node_is_a_file_until_the_next_run(tmp_path: Path) -> None:
    record = made_up_run()
    record.error = NodeFailed(1, "mini2", "Traceback (most recent call last):\n  File ...\nKeyError: 'x'")
    write(tmp_path, record, report=True)
    assert (tmp_path / "traceback.txt").read_text() == record.error.details
    page = (tmp_path / "report.html").read_text()
    assert "<pre>Traceback (most recent call last):" in page
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "mini2.log").write_text("of an earlier run on sockets")
    write(tmp_path)
    assert names_in(tmp_path) == FILES


def test_an_incomplete_folder_says_everything_that_is_missing(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "trace.json").unlink()
    (tmp_path / "metrics.parquet").unlink()
    with pytest.raises(UsageError) as caught:
        load_run(tmp_path)
    assert [problem.key for problem in caught.value.problems] == ["metrics.parquet", "trace.json"]


def test_a_folder_that_does_not_exist_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder"):
        load_run(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ("sync_ps", "runs/quickstart-sync_ps-sim-seed7"),
        ("../mine/algo.py:train", "runs/quickstart-algo.py_train-sim-seed7"),
        ("a b/..", "runs/quickstart-..-sim-seed7"),
    ],
)
def test_the_default_name_tells_runs_apart_and_stays_below_runs(algorithm: str, expected: str) -> None:
    assert default_name("quickstart", algorithm, "sim", 7) == Path(expected)
    assert default_name("quickstart", algorithm, "sim", 7).parent == Path("runs")


def test_reading_a_summary_imports_neither_pandas_nor_plotly(tmp_path: Path) -> None:
    write(tmp_path)
    code = (
        "import sys; from simcluster.results import load_run; load_run(sys.argv[1]).summary;"
        "print([name for name in ('pandas', 'plotly', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_place_below_a_file_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file"):
        check_folder(tmp_path / "file" / "run" / "deeper")


def test_a_place_that_cannot_be_written_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, mode: int = 0o777) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr("os.mkdir", refuse)  # root may write everywhere
    with pytest.raises(UsageError, match="cannot be written"):
        check_folder(tmp_path / "runs" / "run")
