"""Command lines for the system's ssh client.

The user's configuration applies: agent, jump hosts, keys, ports, aliases. Settings that must not depend on it come
first on the command line, since ssh uses the first value it finds: never prompt, never connect to a host with an
unknown key, and give up a dead connection.
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
    """How to call ssh: *config* as its -F, *options* as its -o. *program* is the client."""

    config: str | None = None
    options: tuple[str, ...] = ()
    program: str = "ssh"

    def command(self, target: str, words: Sequence[str]) -> list[str]:
        """Return the arguments that run *words*, unchanged by any shell, at *target*."""
        return [*self._base(), "--", target, shlex.join(words)]

    def asking(self, target: str) -> list[str]:
        """Return the arguments that print how ssh would reach *target*, without connecting."""
        return [*self._base(), "-G", "--", target]

    def _base(self) -> list[str]:
        config = ["-F", self.config] if self.config is not None else []
        return [self.program, "-T", *config, *(part for option in (*FIRST, *self.options) for part in ("-o", option))]


def host_name(answer: str) -> str | None:
    """Return the host's name or address in the *answer* to `Ssh.asking`; None if it is reached through another."""
    said = dict(line.split(" ", 1) for line in answer.splitlines() if " " in line)
    if said.get("proxyjump", "none") != "none" or said.get("proxycommand", "none") != "none":
        return None
    return said.get("hostname")
