"""The command line of the system's ssh client, and what it makes of the words that are to run at the other end.

The user's own configuration holds: agent, jump hosts, keys, ports, aliases. What must not depend on it comes first on
the command line, since ssh takes the first value that it meets: it asks nobody, it talks to no host whose key is not
known already, and a connection that is dead is given up.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

FIRST = (
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "ConnectTimeout=15",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ClearAllForwardings=yes",
    "RemoteCommand=none",
    "PermitLocalCommand=no",
    "ControlPath=none",
)


@dataclass(frozen=True)
class Ssh:
    """How ssh is called: *config* as its -F, *options* as its -o. *program* is the client."""

    config: str | None = None
    options: tuple[str, ...] = ()
    program: str = "ssh"

    def command(self, target: str, words: Sequence[str]) -> list[str]:
        """The arguments that run *words*, which no shell may change, at *target*."""
        return [*self._base(), "--", target, remote_line(words)]

    def asking(self, target: str) -> list[str]:
        """The arguments that print what ssh would do to reach *target*, without doing it."""
        return [*self._base(), "-G", "--", target]

    def _base(self) -> list[str]:
        config = ["-F", self.config] if self.config is not None else []
        return [self.program, "-T", *config, *(part for option in (*FIRST, *self.options) for part in ("-o", option))]


def remote_line(words: Sequence[str]) -> str:
    """*words* as the one line that ssh makes of them for the shell at the other end, each quoted."""
    return shlex.join(words)


def host_name(answer: str) -> str | None:
    """The host's name or address in the *answer* to `Ssh.asking`; None if it is reached by way of another."""
    said = dict(line.split(" ", 1) for line in answer.splitlines() if " " in line)
    if said.get("proxyjump", "none") != "none" or said.get("proxycommand", "none") != "none":
        return None
    return said.get("hostname")
