"""`--help` of every command: it fits 80 columns, explains each option, and cuts no sentence off."""

from __future__ import annotations

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
    assert shown.split("Commands:")[1].split()[0] == "run"
