"""What the command does for somebody at a terminal: names are completed, long work shows a bar."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simcluster.cli import app as cli
from simcluster.cli.terminal import show as cli_show

COMMAND = Path(sys.executable).with_name("simcluster")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("simcluster run q", ["quickstart"]),
        ("simcluster run mi", ["mine.yaml"]),
        ("simcluster topology check sub", ["sub/"]),
        ("simcluster topology check sub/", ["sub/a[1].yml"]),
        ("simcluster topology check sub/a[", ["sub/a[1].yml"]),
        ("simcluster run quickstart --topology s", ["smolcluster", "star-8-gigabit", "sub/"]),
        ("simcluster run quickstart --algorithm sy", ["sync_ps"]),
    ],
)
def test_a_shell_completes_names_and_files(words: str, found: list[str], tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for file in ("mine.yaml", "mine.txt", "sub/a[1].yml"):
        (tmp_path / file).touch()
    asked = {
        "_SIMCLUSTER_COMPLETE": "complete_bash",
        "COMP_WORDS": words.replace(" ", "\n"),  # as the shell's function joins them
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    done = subprocess.run([COMMAND], env={**os.environ, **asked}, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == found


def test_a_terminal_sees_tables_wrapped_and_a_pipe_whole_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    cli.list_("algorithms")
    whole = capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    cli.list_("algorithms")
    wrapped = capsys.readouterr().out
    assert max(map(len, whole.splitlines())) > 80 >= max(map(len, wrapped.splitlines()))
    assert wrapped.split() == whole.split()
    assert "*" not in whole


def test_a_terminal_sees_a_bar_that_a_pipe_and_json_do_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for terminal, silent in ((False, False), (True, True)):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal)
        with cli_show.progress_bar("quickstart", silent=silent) as progress:
            assert progress is None
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with cli_show.progress_bar("quickstart", silent=False) as progress:
        assert progress is not None
        progress(30, 200)
    seen = capsys.readouterr().err
    assert "quickstart" in seen
    assert "30/200" in seen


def test_ctrl_c_is_answered_wherever_it_comes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(kind: str) -> dict[str, str]:
        raise KeyboardInterrupt

    monkeypatch.setattr("simcluster.catalogue.catalogue", interrupted)
    monkeypatch.setattr(sys, "argv", ["simcluster", "list"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err.strip().splitlines()[-1] == "interrupted"
