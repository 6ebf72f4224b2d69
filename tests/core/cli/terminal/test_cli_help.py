"""`--help` of every command: it fits 80 columns, explains each option, and cuts no sentence off."""

from __future__ import annotations

import re
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from simcluster.cli.app import app


def commands(command: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """*command*'s path and those of all below it."""
    below = getattr(command, "commands", {})
    return [path] + [found for name, part in below.items() for found in commands(part, (*path, name))]


PATHS = commands(get_command(app))


def command_at(path: tuple[str, ...]) -> Any:
    command: Any = get_command(app)
    for name in path:
        command = command.commands[name]
    return command


@pytest.mark.parametrize("path", PATHS, ids=lambda path: " ".join(path) or "simcluster")
def test_help_fits_a_terminal_of_80_columns_and_cuts_no_sentence_off(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80"})
    assert shown.exit_code == 0
    assert max(map(len, shown.output.splitlines())) <= 80
    whole = " ".join(shown.output.split())
    for part in getattr(command_at(path), "commands", {}).values():
        assert " ".join(part.help.split("\n\n")[0].split()) in whole


@pytest.mark.parametrize("path", PATHS, ids=lambda path: " ".join(path) or "simcluster")
def test_every_command_and_option_is_explained(path: tuple[str, ...]) -> None:
    command = command_at(path)
    assert command.help
    assert [parameter.name for parameter in command.params if not getattr(parameter, "help", None)] == []


def test_a_run_comes_first_since_it_is_what_people_look_for() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    assert shown.split("\nRun:")[1].split()[0] == "run"


def test_commands_and_the_options_of_run_are_grouped_by_purpose() -> None:
    def titles(*words: str) -> list[str]:
        shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80"}).output
        return re.findall(r"^(\w[\w ]*):$", shown, flags=re.MULTILINE)

    groups = ["Run", "Start", "Look at results", "Describe clusters", "Real nodes"]
    assert [title for title in titles() if title in (*groups, "Commands")] == groups
    assert titles("run") == ["Arguments", "Options", "Output", "Real nodes"]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: " ".join(path) or "simcluster")
def test_help_names_no_file_that_a_wheel_lacks(path: tuple[str, ...]) -> None:
    assert "docs/" not in CliRunner().invoke(app, [*path, "--help"]).output


def test_help_is_as_wide_as_the_terminal_up_to_120_columns_and_has_examples(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for columns, widest in ((100, 100), (200, 120)):
        monkeypatch.setenv("COLUMNS", str(columns))
        code, shown, _ = command("run", "--help")
        assert code == 0
        assert widest - 15 < max(map(len, shown.splitlines())) <= widest
        examples = shown.split("Examples:")[1].split("simcluster run ")[1:]
        assert len(examples) == 5
