"""Make command lines for the system's ssh client.

The user's configuration applies: agent, jump hosts, keys, ports, aliases. A few settings must not
depend on it: never prompt, never connect to a host with an unknown key, and drop a dead connection.
They come first on the command line, since ssh uses the first value that it finds.
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
    """The ssh client *program*, with *config* as its -F option and *options* as its -o options."""

    config: str | None = None
    options: tuple[str, ...] = ()
    program: str = "ssh"

    def command(self, target: str, words: Sequence[str]) -> list[str]:
        """Return the command line that runs *words*, unchanged by any shell, at *target*."""
        return [*self._base(), "--", target, shlex.join(words)]

    def asking(self, target: str) -> list[str]:
        """Return the command line that prints how ssh would reach *target*, without connecting."""
        return [*self._base(), "-G", "--", target]

    def _base(self) -> list[str]:
        config = ["-F", self.config] if self.config is not None else []
        return [self.program, "-T", *config, *(part for option in (*FIRST, *self.options) for part in ("-o", option))]


def host_name(answer: str) -> str | None:
    """Return the host's name or address from the output *answer* of `Ssh.asking`.

    Return None if ssh reaches it through another host.
    """
    said = dict(line.split(" ", 1) for line in answer.splitlines() if " " in line)
    if said.get("proxyjump", "none") != "none" or said.get("proxycommand", "none") != "none":
        return None
    return said.get("hostname")
