"""Which address of this machine others reach it at: found without a packet, and asked for where there are several."""

from __future__ import annotations

import asyncio

import pytest
from simcluster_backends.sockets.net import addresses as module
from simcluster_backends.sockets.net.addresses import facing, listen_towards, meeting_host
from simcluster_backends.sockets.net.ssh import Ssh

from simcluster.errors import UsageError
from simcluster.job import Remote


def test_loopback_faces_loopback_and_nothing_faces_what_is_no_host() -> None:
    assert facing("127.0.0.1") == "127.0.0.1"
    assert facing("no such host.invalid") is None


def test_a_node_listens_where_it_is_told_or_else_towards_its_launcher() -> None:
    assert listen_towards("10.0.0.1:7", "127.0.0.1:1") == "10.0.0.1:7"
    assert listen_towards("", "127.0.0.1:1") == "127.0.0.1:0"


def test_one_address_that_faces_all_is_taken_and_several_are_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = {"10.10.0.2": "10.10.0.1", "10.10.0.3": "10.10.0.1", "192.168.50.2": "192.168.50.1"}
    monkeypatch.setattr(module, "facing", ways.get)

    def meet(*addresses: str) -> str:
        remotes = [Remote(f"me@{address}", address=address) for address in addresses]
        return asyncio.run(meeting_host(remotes, Ssh()))

    assert meet("10.10.0.2", "10.10.0.3") == "10.10.0.1"
    with pytest.raises(UsageError, match=r"10\.10\.0\.1 towards 10\.10\.0\.2, 192\.168\.50\.1 towards 192\.168\.50\.2"):
        meet("10.10.0.2", "192.168.50.2")
    with pytest.raises(UsageError, match=r"no route from here to 10\.9\.9\.9.*--rendezvous"):
        meet("10.9.9.9")
