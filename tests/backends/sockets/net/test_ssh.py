"""The command line of ssh: what the user's configuration cannot undo, and words that no shell may change."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simcluster_backends.sockets.net.ssh import FIRST, Ssh, host_name

HOSTILE = ["$(touch owned)", "a b", "it's", '"', "`id`", "; rm x", "\\", "*", "~", "-n", "", "\n", "é", "#", "&&"]


@given(st.lists(st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_characters="\0"))), min_size=1))
def test_the_line_for_the_other_shell_reads_back_as_the_same_words(words: list[str]) -> None:
    assert shlex.split(Ssh().command("host", words)[-1]) == words


def test_a_real_shell_hands_on_hostile_words_as_they_are() -> None:
    # What sshd does with the line: it gives it to the user's shell.
    line = Ssh().command("host", ["printf", r"%s\0", *HOSTILE])[-1]
    printed = subprocess.run(["/bin/sh", "-c", line], capture_output=True, check=True).stdout
    assert printed.decode().split("\0")[:-1] == HOSTILE


def test_nothing_that_a_user_configures_comes_before_strictness_and_nothing_behind_the_host_is_an_option() -> None:
    ssh = Ssh("/my config", ("StrictHostKeyChecking=no", "Port=2200"))
    command = ssh.command("me@mini1", ["python3", "-m", "simcluster", "node", "mini1"])
    given_options = [command[i + 1] for i, word in enumerate(command) if word == "-o"]
    assert given_options == [*FIRST, "StrictHostKeyChecking=no", "Port=2200"]  # ssh takes the first of each
    assert {"BatchMode=yes", "StrictHostKeyChecking=yes"} <= set(FIRST)
    assert command[-3:] == ["--", "me@mini1", "python3 -m simcluster node mini1"]
    assert command[command.index("-F") + 1] == "/my config"


@pytest.mark.parametrize(
    ("more", "expected"), [("", "10.0.0.7"), ("proxyjump bastion\n", None), ("proxycommand nc %h\n", None)]
)
def test_the_host_that_ssh_would_connect_to_is_known_unless_it_is_behind_another(more: str, expected: str) -> None:
    assert host_name(f"user me\nhostname 10.0.0.7\nport 22\n{more}") == expected
