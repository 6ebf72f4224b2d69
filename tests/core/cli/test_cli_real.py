"""Options for real nodes: what they become for the backend, and where they have no meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simcluster.cli.terminal.options import real_options
from simcluster.errors import UsageError

NOTHING: dict[str, Any] = {"ssh": True, "ssh_config": None, "ssh_options": None, "tmux": False, "max_restarts": None}


def test_what_is_not_given_says_nothing() -> None:
    assert real_options("sim", **NOTHING) == {}
    assert real_options(None, **NOTHING) == {}


def test_what_is_given_goes_to_the_backend_as_plain_values() -> None:
    given = {"ssh": False, "ssh_config": Path("/c"), "ssh_options": ["Port=2"], "tmux": True, "max_restarts": 0}
    expected = {"ssh": False, "ssh_config": "/c", "ssh_options": ["Port=2"], "tmux": True, "max_restarts": 0}
    assert real_options("sockets", **given) == expected


def test_for_the_simulator_they_have_no_meaning_and_each_is_named_as_it_was_written() -> None:
    given = NOTHING | {"ssh": False, "ssh_options": ["Port=2"], "max_restarts": 2}
    with pytest.raises(UsageError) as error:
        real_options("sim", **given)
    assert [problem.key for problem in error.value.problems] == ["--no-ssh", "--ssh-option"]
    assert real_options("sim", **NOTHING | {"max_restarts": 2}) == {"max_restarts": 2}, "but it begins again, too"


def test_a_wrong_request_is_told_before_anything_is_written(command: Any, tmp_path: Path) -> None:
    code, _, said = command(
        "run", "quickstart", "--backend", "sockets", "--coordinator", "127.0.0.1:0", "--option", "dead_s=100",
        "--tls", "nowhere", "--ssh-option", "Port", "--max-restarts", "-1",
    )  # fmt: skip
    assert code == 2
    for words in ("token_file: found none", "from 1e-06 to 90", "no nowhere/ca.pem", "ssh_options", "from 0 to"):
        assert words in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--join", "127.0.0.1:1"), "--key-file: found nothing"),
        (("--coordinator", "http://127.0.0.1:1"), "--token-file: found nothing"),
        (("--coordinator", "http://h:1", "--token-file", "t", "--join", "h:1"), "no --join with --coordinator"),
    ],
)
def test_a_node_is_told_what_it_lacks(command: Any, arguments: tuple[str, ...], words: str) -> None:
    code, _, said = command("node", "a", *arguments)
    assert code == 2
    assert words in said
