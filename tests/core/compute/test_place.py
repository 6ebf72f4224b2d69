"""The device that `compute` names, on machines with and without accelerators."""

from __future__ import annotations

import pytest
import torch

from simcluster.compute import HOST, device_of
from simcluster.errors import UsageError


def has(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr("simcluster.compute.place.accelerators", lambda: [torch.device(name) for name in names])


@pytest.mark.parametrize(
    ("compute", "there_are", "expected"),
    [
        ("auto", [], "cpu"),
        ("auto", ["mps"], "mps"),
        ("auto", ["cuda:0", "cuda:1"], "cuda:0"),
        ("cuda", ["cuda:0", "cuda:1"], "cuda:0"),
        ("cuda:1", ["cuda:0", "cuda:1"], "cuda:1"),
        ("mps", ["mps"], "mps"),
        ("cpu", ["cuda:0"], "cpu"),
    ],
)
def test_it_is_the_one_that_is_named(
    compute: str, there_are: list[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    has(monkeypatch, *there_are)
    assert device_of(compute, {}) == torch.device(expected)


def test_ranks_of_one_machine_share_its_devices_out(monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, "cuda:0", "cuda:1")
    found = [device_of("auto", {"LOCAL_RANK": str(rank)}).index for rank in range(3)]
    assert found == [0, 1, 0]
    assert device_of("cuda:0", {"LOCAL_RANK": "1"}).index == 0


@pytest.mark.parametrize(
    ("compute", "there_are"), [("cuda", []), ("cuda:2", ["cuda:0", "cuda:1"]), ("mps", ["cuda:0"])]
)
def test_an_absent_one_is_refused_with_those_that_are_there(
    compute: str, there_are: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    has(monkeypatch, *there_are)
    with pytest.raises(UsageError) as error:
        device_of(compute, {})
    names = ", ".join(["cpu", *there_are])
    assert str(error.value) == f"compute: found {compute!r}, expected auto, or one that this machine has: {names}"


def test_the_processor_asks_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked() -> list[torch.device]:
        raise AssertionError("a process that has asked cannot be forked")

    monkeypatch.setattr("simcluster.compute.place.accelerators", asked)
    assert device_of("cpu") is HOST
