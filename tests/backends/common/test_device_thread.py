"""The thread that does a real node's work."""

from __future__ import annotations

import threading

from simcluster_backends.common.device import DeviceThread


def test_a_device_has_settled_when_the_last_piece_asked_for_has_ended() -> None:
    device, go, done = DeviceThread("device of a"), threading.Event(), list[int]()
    for number in range(3):
        device.submit(lambda number=number: (go.wait(), done.append(number)))
    assert not device.settle(0.0)
    assert done == []
    go.set()
    assert device.settle(60.0)
    assert done == [0, 1, 2]
    assert device.close(60.0)
