"""Memory that is returned to the system, counted in calls of the C library."""

from __future__ import annotations

import pytest

from simcluster.process import memory


def test_freed_pieces_are_returned_together(monkeypatch: pytest.MonkeyPatch) -> None:
    trims: list[None] = []
    monkeypatch.setattr(memory, "_trim", lambda: trims.append(None))
    monkeypatch.setattr(memory, "_freed_bytes", 0)
    counts = []
    for _ in range(9):
        memory.note_freed(2**23)
        counts.append(len(trims))
    assert counts == [0, 0, 0, 1, 1, 1, 1, 2, 2]
