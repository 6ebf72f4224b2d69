"""Describe the problems of a node, each with a remedy."""

from __future__ import annotations

import re
from dataclasses import dataclass

from simcluster.process.accelerators import missing
from simcluster.topology.model.compute import CPU
from simcluster_backends.sockets.doctor.probe import MachineAnswers
from simcluster_backends.sockets.launcher.machine_messages import Fingerprint, differences

CLOCK_LIMIT_S = 1.0
"""The largest tolerated clock difference: times in logs and certificates stay comparable."""


@dataclass(frozen=True)
class Trouble:
    """A problem of a node: *what* describes it, and *do* is the remedy."""

    what: str
    do: str


_SERVER = "switch its ssh server on (macOS: Sharing, Remote Login; Linux: sshd), or correct the port in ~/.ssh/config"
_REFUSED = re.compile(r"port (\d{1,5}): Connection refused")
_SSH = (
    ("Permission denied", "let your key in: ssh-copy-id {target}; ssh must work without a password"),
    ("Host key verification failed", "compare and accept its host key once: ssh {target}"),
    ("Could not resolve hostname", "correct `ssh` in the topology, or name the host in ~/.ssh/config"),
    ("Connection refused", _SERVER),
    ("timed out", "check cable, address, route and firewall, and whether it sleeps"),
    ("No route to host", "check cable, address and route"),
    ("Network is unreachable", "check this machine's address and routes"),
)
_THERE = (
    ("No module named", "install simcluster in the Python that `python` in the topology names"),
    ("SIMCLUSTER_START", "correct that variable in the environment of its non-interactive shells"),
)


def why_not_asked(answers: MachineAnswers, target: str | None) -> Trouble:
    """Return the reason for which a machine's answers are missing, with a remedy.

    *target* is its ssh target, or None for this machine.
    """
    said = f": {answers.said}" if answers.said else ""
    what = f"{answers.failure}{said}"
    if target is not None and answers.exit_code == 255:
        if refused := _REFUSED.search(answers.said):
            return Trouble(f"ssh is refused on port {refused[1]} of {target}: {answers.said}", _SERVER)
        for words, do in _SSH:
            if words in answers.said:
                return Trouble(f"ssh {target} {what}", do.format(target=target))
        return Trouble(f"ssh {target} {what}", f"make this work first: ssh {target} true")
    if "cannot be started" in answers.failure:
        return Trouble(what, "install it on this machine, or correct PATH")
    for words, do in _THERE:
        if words in answers.said:
            return Trouble(what, do)
    if answers.exit_code in (126, 127):
        return Trouble(
            what, "give `python` or `command` in the topology a whole path: shells over ssh have a short PATH"
        )
    if answers.fingerprint is None:
        return Trouble(what, "look at it there, or give more time: --timeout SECONDS")
    return Trouble(
        f"facts are missing: {what}", "install the same simcluster there, or give more time: --timeout SECONDS"
    )


def troubles_of(answers: MachineAnswers, here: Fingerprint, own: str | None, compute: str = CPU) -> list[Trouble]:
    """Return all troubles that the *answers* of a node's machine show.

    *here* is this machine's fingerprint. *own* is the node's address, and *compute* the processor
    that its topology asks for.
    """
    found = []
    if answers.fingerprint is not None and (words := differences(here, answers.fingerprint)):
        found.append(Trouble("; ".join(words), "install the same there: a run compares them, and refuses"))
    offset_s, error_s = answers.clock_offset_s, answers.clock_error_s
    if offset_s is not None and error_s is not None and abs(offset_s) - error_s > CLOCK_LIMIT_S:
        ahead = "ahead" if offset_s > 0 else "behind"
        do = "set it by NTP (Linux: timedatectl set-ntp true; macOS: sntp -sS time.apple.com)"
        found.append(Trouble(f"its clock is {abs(offset_s):.1f} s {ahead}", do))
    facts = answers.facts
    if facts is None:
        return found
    if own is not None and own in facts.unusable:
        do = "set the address on its interface, or correct `address` in the topology"
        found.append(Trouble(f"it cannot listen at its address {own}: {facts.unusable[own]}", do))
    if unrouted := [peer for peer, source in facts.sources.items() if not source]:
        found.append(Trouble(f"it has no route to {', '.join(unrouted)}", "add routes: docs/shelf.md"))
    if not facts.accelerator:
        found.append(Trouble("torch cannot be imported there", "pip install torch in the Python of the topology"))
    elif wrong := missing(compute, facts.accelerators):
        do = "install a torch and a driver for it there, or correct `compute` in the topology"
        found.append(Trouble(f"compute: {compute} is not there; expected {wrong}", do))
    return found
