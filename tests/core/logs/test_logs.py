"""What processes say as JSON: every line has its keys, whoever said it; and text stays as it was."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from simcluster_backends.sockets import run_cluster

from simcluster.cli import app as cli
from simcluster.cli.terminal import show as cli_show
from simcluster.errors import UsageError
from simcluster.logs import loki
from simcluster.logs import setup as logs
from simcluster.logs.setup import KEYS, Lines, LogSettings
from tests.support.socket_runs import job


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    logs.close()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_every_line_has_all_keys_and_one_record_is_one_line() -> None:
    stream = io.StringIO()
    logs.configure(LogSettings("json", "info", job="quick", component="node", rank=3), stream)
    logging.getLogger("simcluster.sockets").warning("%s\nand \x1b[2J more", "two lines")
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("x").exception("it broke")
    logging.getLogger("x").debug("not this one")
    first, second = lines(stream)
    assert all(set(KEYS) <= set(line) for line in (first, second))
    assert (first["job"], first["component"], first["rank"], first["level"]) == ("quick", "node", 3, "warning")
    assert first["message"] == "two lines\nand \x1b[2J more"
    assert first["time"].endswith("+00:00")
    assert "\x1b" not in stream.getvalue()
    assert "ValueError: why" in second["exception"]


def test_what_a_program_prints_is_logged_line_by_line_whatever_the_level() -> None:
    stream = io.StringIO()
    logs.configure(LogSettings("json", "error"), stream)
    printed = Lines("stdout", logging.INFO)
    print("a", "b", file=printed)
    printed.write("begun ")
    assert len(lines(stream)) == 1
    printed.write("and ended\n\nrest")
    printed.close()
    assert [line["message"] for line in lines(stream)] == ["a b", "begun and ended", "", "rest"]
    assert {(line["stream"], line["level"]) for line in lines(stream)} == {("stdout", "info")}


def test_a_line_of_a_node_elsewhere_is_passed_on_if_it_is_such_a_line_and_wrapped_if_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure(LogSettings("json", "info", job="j"), io.StringIO())
    theirs = json.dumps(dict.fromkeys(KEYS, "x"))
    for line in (theirs, "plain \x1b[2J", '{"time": 1}', "[]"):
        cli_show.print_line("pi4", line)
    found = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert found[0] == dict.fromkeys(KEYS, "x")
    assert [line["message"] for line in found[1:]] == ["plain \x1b[2J", '{"time": 1}', "[]"]
    assert {(line["component"], line["node"], line["job"]) for line in found[1:]} == {("node", "pi4", "j")}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (LogSettings("xml"), "one of text, json"),
        (LogSettings(level="loud"), "one of debug, info, warning, error"),
        (LogSettings(loki="loki:3100"), "http://HOST:PORT"),
        (LogSettings(loki="http://me:secret@loki"), "without a name or password"),
    ],
)
def test_a_wrong_setting_is_told(settings: LogSettings, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        logs.check(settings)


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    monkeypatch.setattr(sys, "argv", ["simcluster", *arguments])
    try:
        cli.main()
    except SystemExit as end:
        return end.code
    return 0


QUICK = ("--set", "workload={name: quadratic}", "--set", "stop.steps=3", "--no-report")


@pytest.mark.slow
def test_a_run_says_in_json_when_it_begins_and_ends_and_why_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(monkeypatch, "run", "quickstart", *QUICK, "--log-format", "json") == 0
    done = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["message"].split()[:3] for line in done] == [["quickstart", "on", "sim"], ["the", "run", "is"]]
    assert {(line["job"], line["component"]) for line in done} == {("quickstart", "run")}
    crash = "faults=[{kind: crash, node: pi4, at: 1 us}]"
    with_crash = ("run", "quickstart", *QUICK, "--algorithm", "zero", "--set", crash, "--log-format", "json")
    assert command(monkeypatch, *with_crash, "--log-level", "error") == 1
    (failed,) = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert failed["level"] == "error"
    assert "pi4" in failed["message"]
    assert "run folder" in failed["message"]
    assert command(monkeypatch, "run", "nosuch", "--log-format", "json") == 2
    assert json.loads(capsys.readouterr().err)["level"] == "error"


def test_ctrl_c_is_one_line_of_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*arguments: object, **keys: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("simcluster.experiment.run", interrupted)
    assert command(monkeypatch, "run", "quickstart", "--log-format", "json") == 130
    assert json.loads(capsys.readouterr().err)["message"] == "interrupted"


def test_as_text_nothing_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(monkeypatch, "run", "quickstart", *QUICK) == 0
    assert capsys.readouterr().err == ""


def test_a_real_node_logs_as_its_launcher_does_and_what_it_prints_too(tmp_path: Path) -> None:
    logs.configure(LogSettings("json", "info"), io.StringIO())
    record = run_cluster(job("prints", "ab", log_folder=tmp_path, about={"name": "told"}))
    assert record.error is None
    for rank, name in enumerate("ab"):
        found = [json.loads(line) for line in (tmp_path / f"{name}.log").read_text().splitlines()]
        (line,) = [line for line in found if line["message"] == f"hello from {rank}"]
        assert (line["job"], line["component"], line["rank"], line["stream"]) == ("told", "node", rank, "stdout")


def test_what_loki_did_not_get_is_said_as_json_as_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loki, "CLOSE_S", 0.2)
    stream = io.StringIO()
    logs.configure(LogSettings("json", "info", loki="http://127.0.0.1:1"), stream)
    logging.getLogger("x").info("into the void")
    logs.close()
    said = [line["message"] for line in lines(stream)]
    assert said == ["into the void", "to Loki at 127.0.0.1:1 did not get: 1 lines"]
