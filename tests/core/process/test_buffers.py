"""Memory of large tensors is used again, never while anything reads it, and never more than was needed at once."""

from __future__ import annotations

import os
import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simcluster.process.buffers import PAGE_BYTES, Buffers

LENGTH = PAGE_BYTES // 4  # of floats, which fill one block


def test_a_freed_block_is_used_again_and_one_with_a_view_is_not() -> None:
    buffers = Buffers()
    first = buffers.empty((LENGTH,), torch.float32)
    place = first.data_ptr()
    view = first[5:7].view(2, 1)
    del first
    second = buffers.empty((2, LENGTH // 2), torch.float32)
    assert second.data_ptr() != place, "the view still reads it"
    del view
    assert buffers.empty((LENGTH // 2,), torch.float64).data_ptr() == place


def test_small_tensors_and_other_sizes_get_memory_of_their_own() -> None:
    buffers = Buffers()
    large = buffers.empty((LENGTH,), torch.float32)
    place = large.data_ptr()
    del large
    small = buffers.empty((3,), torch.bfloat16)
    assert (small.shape, small.dtype) == ((3,), torch.bfloat16)
    assert buffers.empty((2 * LENGTH,), torch.float32).data_ptr() != place


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3)), max_size=40))
def test_free_and_used_blocks_together_are_never_more_than_were_used_at_once(moves: list[tuple[bool, int]]) -> None:
    buffers, used, most = Buffers(), [], 0
    for takes, pages in moves:
        if takes:
            used.append(buffers.empty((pages * LENGTH,), torch.float32))
        elif used:
            del used[0]
        bytes_used = sum(tensor.nbytes for tensor in used)
        most = max(most, bytes_used)
        assert bytes_used + sum(map(len, buffers._free)) <= most
    buffers.clear()
    assert not buffers._free


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_has_a_copy() -> None:
    tensor = Buffers().empty((LENGTH,), torch.float32).fill_(1.0)
    numbers = tensor.numpy()  # a fork may not use torch's threads
    child = os.fork()
    if not child:
        numbers[:] = 2.0
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert (numbers == 1.0).all()


def test_tensors_may_go_in_any_thread() -> None:
    buffers = Buffers()

    def work() -> None:
        for number in range(200):
            tensor = buffers.empty((LENGTH,), torch.float32)
            tensor[0] = tensor[-1] = number
            assert tensor[0] == tensor[-1] == number

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert buffers._used_bytes == 0
    assert 1 <= len(buffers._free) <= 2 * 4, "a thread has a new tensor and the one before"
