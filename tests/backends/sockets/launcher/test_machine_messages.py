"""Lines over ssh: read back as they were, anything else is text, and a secret is in no representation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simcluster_backends.sockets.launcher.machine_messages import (
    MARK,
    Fingerprint,
    MachineReport,
    NodeAddress,
    OutputLine,
    ProcessExit,
    SignalOrder,
    StartOrder,
    line_of,
    read_from_machine,
    read_to_machine,
)

ORDER = StartOrder(
    "10.0.0.1:7000", "6b" * 32, [NodeAddress("a", "10.0.0.2:0")], {"/x/own.py": b"\xff\0"}, {"a.key": b"secret"}
)


@pytest.mark.parametrize(
    "message", [MachineReport(Fingerprint({"torch": "2"}, {})), OutputLine("a", "é\n\x1b["), ProcessExit("a", None)]
)
def test_what_a_machine_says_is_one_line_and_reads_back(message: MachineReport | OutputLine | ProcessExit) -> None:
    line = line_of(message)
    assert line.count(b"\n") == 1
    assert read_from_machine(line) == message
    assert read_to_machine(line) is None


@pytest.mark.parametrize("message", [ORDER, SignalOrder("a", "SIGKILL"), SignalOrder("a", "SIGSTOP")])
def test_what_a_launcher_says_is_one_line_and_reads_back(message: StartOrder | SignalOrder) -> None:
    line = line_of(message)
    assert line.count(b"\n") == 1
    assert read_to_machine(line) == message
    assert read_from_machine(line) is None


@given(st.binary(), st.booleans())
def test_whatever_a_shell_greets_with_is_no_message(noise: bytes, marked: bool) -> None:
    line = (MARK if marked else b"") + noise
    assert read_from_machine(line) is None
    assert read_to_machine(line) is None


def test_an_order_shows_neither_key_nor_certificates() -> None:
    assert "6b6b" not in repr(ORDER)
    assert "secret" not in repr(ORDER)
