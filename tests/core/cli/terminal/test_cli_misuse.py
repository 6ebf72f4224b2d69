"""Wrong options and arguments: one line with the place, what was found and expected, and where to read more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["run", "quickstart", "--seed", "abc"],
            "--seed: found 'abc', expected a whole number\nsee: simcluster run",
        ),
        (["run", "quickstart", "--seed=1.5"], "--seed: found '1.5', expected a whole number\n"),
        (["run", "quickstart", "--seed"], "--seed: found nothing, expected a value\n"),
        (["ui", "--port", "70000"], "--port: found '70000', expected at most 65535\nsee: simcluster ui --help"),
        (["ui", "--port", "-1"], "--port: found '-1', expected at least 0\nsee: simcluster ui --help"),
        (["run", "quickstart", "--algoritm", "edp"], "--algoritm: unknown option; did you mean '--algorithm'?\n"),
        (["run", "quickstart", "more"], "EXPERIMENT: found quickstart and more, expected one; arguments belong to --s"),
        (["run"], "EXPERIMENT: found nothing, expected an experiment file, the name of a shipped one, or --script"),
        (["flows", "--seed", "-1"], "--seed: found '-1', expected at least 0\nsee: simcluster flows --help"),
        (["bench", "collective", "--seed", "-1"], "--seed: found '-1', expected at least 0\n"),
        (["report", "a", "--jso"], "--jso: unknown option; expected one of --help\nsee: simcluster report --help"),
        (["topology", "draw", "star-8-gigabit", "--out", "a.png"], "--out: found a.png, expected a file that ends in"),
        (["verify", "edp", "--nodes", "2000"], "--nodes: found [2000], expected world sizes of at least 1 and at most"),
        (["rnu"], "rnu: unknown command; did you mean 'run'?\nsee: simcluster --help"),
        (["bench", "tarnsport"], "tarnsport: unknown command; did you mean 'transport'?\nsee: simcluster bench --help"),
    ],
)
def test_a_wrong_command_line_is_answered_in_a_sentence(
    words: list[str], said: str, command: Any, tmp_path: Path
) -> None:
    code, out, err = command(*words)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {said}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["the command", "--set", "the file"])
def test_an_option_of_real_nodes_is_judged_by_the_backend_that_is_named(
    where: str, command: Any, tmp_path: Path
) -> None:
    backend = {"the command": ["--backend", "sockets"], "--set": ["--set", "backend=sockets"]}.get(where, [])
    experiment = "topology: smolcluster\nalgorithm: edp\nworkload: quadratic\nstop: {steps: 0}\n"
    (tmp_path / "e.yaml").write_text(experiment + ("backend: sockets\n" if where == "the file" else ""))
    code, _, err = command("run", "e.yaml", "--tmux", *backend)
    assert code == 2
    assert "at least 1" in err  # the steps: nothing is said about --tmux
    assert "--tmux" not in err
