"""Late copies: memory is shared until one side writes, and nothing that may look at a weight loses sight of it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from simcluster.payload import freeze, give
from simcluster.process import late_copies
from simcluster.process.late_copies import LEAST_BYTES, late_copy, take_over

LENGTH = LEAST_BYTES // 4

needs_torch = pytest.mark.skipif(not late_copies.AVAILABLE, reason="this build of torch copies at once")


def shares(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether both have one memory, without a look that would copy it: only the shared keep the mark."""
    return all(torch._C._is_cow_tensor(tensor) for tensor in (one, other))  # type: ignore[attr-defined]


def weight() -> tuple[nn.Parameter, list[torch.Tensor]]:
    parameter = nn.Parameter(torch.zeros(LENGTH))
    return parameter, [parameter.detach()]


@pytest.mark.parametrize("writer", ["sender", "receiver"])
def test_what_either_side_writes_the_other_does_not_see(writer: str) -> None:
    sent = torch.ones(LENGTH)
    arrived = freeze(give(sent)).tensors[0]
    (sent if writer == "sender" else arrived).add_(1)
    assert torch.equal(arrived if writer == "sender" else sent, torch.ones(LENGTH))


def test_an_array_of_what_arrived_is_the_receivers_alone() -> None:
    sent = torch.ones(LENGTH)
    first, second = freeze(give(sent)).tensors[0], freeze(give(sent)).tensors[0]
    first.numpy()[0] = 5
    assert sent[0] == second[0] == 1
    assert first[0] == 5


@needs_torch
def test_a_whole_large_tensor_is_shared_and_anything_else_is_copied_at_once() -> None:
    whole = torch.ones(2, LENGTH)
    assert shares(late_copy(whole), whole)
    for other in (torch.ones(2, LENGTH)[0], torch.ones(4), torch.ones(LENGTH, 2).t()):
        copy = late_copy(other)
        assert copy.is_contiguous()
        assert torch.equal(copy, other)
        assert not shares(copy, other)


def test_memory_that_torch_did_not_allocate_is_copied_at_once() -> None:
    array = torch.ones(LENGTH).numpy().copy()
    copy = late_copy(torch.from_numpy(array))
    array[0] = 5
    assert copy[0] == 1


@needs_torch
def test_a_weight_takes_over_a_late_copy_and_an_optimizer_step_changes_only_the_weight() -> None:
    (parameter, live), source = weight(), torch.ones(LENGTH)
    before = parameter._version
    assert take_over(parameter, live, 0, late_copy(source))
    assert torch.equal(parameter, source)
    assert torch.equal(live[0], source)
    assert parameter._version > before
    with torch.no_grad():
        parameter.add_(1)
    assert torch.equal(live[0], torch.full([LENGTH], 2.0))
    assert torch.equal(source, torch.ones(LENGTH))


@pytest.mark.parametrize("look", [lambda p, live: p.data, lambda p, live: live[0][:3], lambda p, live: live[0].numpy()])
def test_a_weight_that_something_else_looks_at_takes_over_nothing(look) -> None:
    (parameter, live), source = weight(), torch.ones(LENGTH)
    seen = look(parameter, live)
    assert not take_over(parameter, live, 0, late_copy(source))
    live[0].copy_(source)
    assert seen[0] == 1


def test_other_types_and_plain_copies_are_not_taken_over() -> None:
    parameter, live = weight()
    assert not take_over(parameter, live, 0, late_copy(torch.ones(LENGTH, dtype=torch.float64)))
    assert not take_over(parameter, live, 0, torch.ones(LENGTH))


def test_without_torchs_functions_a_late_copy_is_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_copies, "AVAILABLE", False)
    source = torch.ones(LENGTH)
    copy = late_copy(source)
    source.add_(1)
    assert torch.equal(copy, torch.ones(LENGTH))
    parameter, live = weight()
    assert not take_over(parameter, live, 0, copy)
