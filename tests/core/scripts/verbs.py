"""Every verb of a process group, each checked against what torch documents; a wrong value raises."""

import datetime
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed import rpc

SUM, AVG, PRODUCT, MIN, MAX = (getattr(dist.ReduceOp, name) for name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX"))


def same(found: torch.Tensor, expected: object) -> None:
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=found.dtype), rtol=0, atol=0)


def error_of(call: Callable[[], object]) -> str:
    """Return the message of the error that *call* raises, or nothing."""
    try:
        call()
    except (NotImplementedError, RuntimeError, ValueError) as error:
        return str(error)
    return ""


def reductions(rank: int, size: int) -> None:
    ranks = list(range(1, size + 1))
    product = 1
    for one in ranks:
        product *= one
    for operation, expected in ((SUM, sum(ranks)), (PRODUCT, product), (MIN, 1), (MAX, size)):
        value = torch.full((5,), float(rank + 1))
        dist.all_reduce(value, op=operation)
        same(value, [float(expected)] * 5)
        value = torch.full((2, 3), rank + 1)
        dist.reduce(value, 1, op=operation)
        if rank == 1:
            same(value, [[expected] * 3] * 2)
    value = torch.tensor([float(rank)])
    dist.all_reduce(value, op=AVG)
    same(value, [(size - 1) / 2])
    for operation, expected in (
        (dist.ReduceOp.BOR, 2**size - 1),
        (dist.ReduceOp.BAND, 0),
        (dist.ReduceOp.BXOR, 2**size - 1),
    ):
        bits = torch.tensor([1 << rank])
        dist.all_reduce(bits, op=operation)
        same(bits, [expected])
    value = torch.tensor([rank + 1.0])
    dist.all_reduce(value, op=dist._make_nccl_premul_sum(0.5))
    same(value, [sum(ranks) / 2])
    value = torch.tensor([complex(1, rank)])
    dist.all_reduce(value)
    same(value, [complex(size, sum(range(size)))])


def gathers(rank: int, size: int) -> None:
    value = torch.tensor([rank, rank * 10])
    parts = [torch.zeros(2, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(parts, value)
    same(torch.stack(parts), [[one, one * 10] for one in range(size)])
    joined = torch.zeros(2 * size, dtype=torch.int64)
    dist.all_gather_into_tensor(joined, value)
    same(joined, [number for one in range(size) for number in (one, one * 10)])
    parts = [torch.zeros(2, dtype=torch.int64) for _ in range(size)] if rank == 0 else None
    dist.gather(value, parts, dst=0)
    if parts is not None:
        same(torch.stack(parts), [[one, one * 10] for one in range(size)])
    got = torch.zeros(2, dtype=torch.int64)
    dist.scatter(got, [torch.tensor([7, one]) for one in range(size)] if rank == 1 else None, src=1)
    same(got, [7, rank])
    value = torch.tensor([3.5 if rank == 2 else 0.0])
    dist.broadcast(value, src=2)
    same(value, [3.5])


def scatters(rank: int, size: int) -> None:
    out = torch.zeros(3)
    dist.reduce_scatter(out, [torch.full((3,), float(rank + place)) for place in range(size)])
    same(out, [sum(one + rank for one in range(size))] * 3)
    whole = torch.arange(2 * size, dtype=torch.float32) + rank
    out = torch.zeros(2)
    dist.reduce_scatter_tensor(out, whole, op=MAX)
    same(out, [2.0 * rank + size - 1, 2.0 * rank + size])
    got = [torch.zeros(2, dtype=torch.int64) for _ in range(size)]
    dist.all_to_all(got, [torch.tensor([rank, place]) for place in range(size)])
    same(torch.stack(got), [[one, rank] for one in range(size)])
    # Uneven: rank r sends p + 1 rows to rank p.
    rows = torch.cat([torch.full((place + 1, 2), float(rank)) for place in range(size)])
    received = torch.zeros((rank + 1) * size, 2)
    dist.all_to_all_single(received, rows, [rank + 1] * size, [place + 1 for place in range(size)])
    same(received[:, 0], [float(one) for one in range(size) for _ in range(rank + 1)])
    # Rank 0 sends everything to the last; the others send nothing.
    received = torch.zeros(3 if rank == size - 1 else 0)
    rows = torch.arange(3.0) if rank == 0 else torch.zeros(0)
    to = [0] * (size - 1) + [len(rows)]
    dist.all_to_all_single(received, rows, [len(received)] + [0] * (size - 1), to)
    same(received, [0.0, 1.0, 2.0][: len(received)])


def messages(rank: int, size: int) -> None:
    following, before = (rank + 1) % size, (rank - 1) % size
    got = torch.zeros(4)
    works = [dist.isend(torch.full((4,), float(rank)), following), dist.irecv(got, before)]
    for work in works:
        work.wait()
    same(got, [float(before)] * 4)
    operations = [
        dist.P2POp(dist.isend, torch.full((4,), rank + 0.5), before),
        dist.P2POp(dist.irecv, got, following),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    same(got, [following + 0.5] * 4)
    if rank == 0:
        sources = set()
        for _ in range(size - 1):
            sources.add(dist.recv(got))
        assert sources == set(range(1, size)), sources
    else:
        dist.send(torch.ones(4), 0)

    # By tag, not by time; from any source in a group of some ranks.
    first, second = torch.tensor([1.0 + rank]), torch.tensor([-1.0 - rank])
    works = [dist.isend(first, following, tag=1), dist.isend(second, following, tag=2)]
    got = [torch.zeros(1), torch.zeros(1)]
    dist.recv(got[1], before, tag=2)
    dist.recv(got[0], before, tag=1)
    same(torch.cat(got), [1.0 + before, -1.0 - before])
    for work in works:
        work.wait()
    some = dist.new_group([1, 2])
    if rank == 1:
        assert dist.recv(got[0], group=some) == 2
        same(got[0], [8.0])
    if rank == 2:
        dist.send(torch.tensor([8.0]), 1, group=some)


def waits(rank: int, size: int) -> None:
    values = [torch.full((3,), float(rank + place)) for place in range(4)]
    works = [dist.all_reduce(value, async_op=True) for value in values]
    for place in (2, 0, 3):
        works[place].wait()
    while not works[1].is_completed():
        pass
    works[1].wait()
    same(torch.stack(values)[:, 0], [float(sum(range(size)) + place * size) for place in range(4)])
    works = [dist.all_reduce(torch.ones(2), async_op=True) for _ in range(3)]
    done = torch.futures.collect_all([work.get_future() for work in works]).wait()
    same(torch.stack([future.value()[0] for future in done]), [[float(size)] * 2] * 3)
    # Rank 1 sends only after rank 0 has given up.
    value = torch.zeros(1)
    if rank == 0:
        work = dist.irecv(value, 1)
        assert "timed out after 0.05 s" in error_of(lambda: work.wait(datetime.timedelta(seconds=0.05)))
        dist.send(torch.ones(1), 1)
        work.wait()
        same(value, [5.0])
    if rank == 1:
        dist.recv(value, 0)
        dist.send(torch.tensor([5.0]), 0)
    dist.monitored_barrier()
    if rank == 1:
        time.sleep(0.4)
    late = lambda: dist.monitored_barrier(None, datetime.timedelta(seconds=0.1), wait_all_ranks=True)  # noqa: E731
    told = f"rank 1 failed to pass: {__file__}:{late.__code__.co_firstlineno}: monitored_barrier timed out after 0.1 s"
    error = error_of(late)
    assert rank != 0 or told in error, error
    dist.barrier()


def functionals(rank: int, size: int) -> None:
    ranks, world = list(range(size)), dist.group.WORLD
    value = torch.full((size, 2), float(rank))
    same(functional.all_reduce(value, "sum", world) + 0, [[float(sum(ranks))] * 2] * size)
    same(functional.all_gather_tensor(value[:1], 0, world) + 0, [[float(one)] * 2 for one in ranks])
    same(functional.reduce_scatter_tensor(value, "sum", 0, world) + 0, [[float(sum(ranks))] * 2])
    sent = torch.arange(size, dtype=torch.float32) + 10 * rank
    same(functional.all_to_all_single(sent, None, None, world) + 0, [10.0 * one + rank for one in ranks])
    same(functional.broadcast(torch.tensor([float(rank)]), 1, world) + 0, [1.0])
    both = functional.all_reduce_coalesced([torch.ones(2), value], "max", world)
    same(both[1] + 0, [[size - 1.0] * 2] * size)
    parts = functional.all_gather_single_coalesced([torch.tensor([rank]), torch.tensor([-rank])], world)
    same(torch.stack([part + 0 for part in parts]), [ranks, [-one for one in ranks]])
    given = torch.full((2,), rank + 1.0, requires_grad=True)
    functional.all_reduce(given, "sum", world).square().sum().backward()
    same(given.grad, [2.0 * size * sum(one + 1 for one in ranks)] * 2)


def objects(rank: int, size: int) -> None:
    told = [None] * size
    dist.all_gather_object(told, {"rank": rank, "text": "x" * rank})
    assert told == [{"rank": one, "text": "x" * one} for one in range(size)], told
    listed = [{"from": 1}, 5] if rank == 1 else [None, None]
    dist.broadcast_object_list(listed, src=1)
    assert listed == [{"from": 1}, 5]
    out = [None]
    dist.scatter_object_list(out, [f"for {one}" for one in range(size)] if rank == 0 else None, src=0)
    assert out == [f"for {rank}"]
    if rank == 0:
        dist.send_object_list(["one", {2: 3}], dst=1)
    if rank == 1:
        dist.recv_object_list(listed, src=0)
        assert listed == ["one", {2: 3}], listed
    gathered = [None] * size if rank == 0 else None
    dist.gather_object(rank * 2, gathered, dst=0)
    assert gathered is None or gathered == [one * 2 for one in range(size)]


def groups(rank: int, size: int) -> None:
    evens = dist.new_group(list(range(0, size, 2)))
    odds = dist.new_group(list(range(1, size, 2)))
    mine, members = (evens, range(0, size, 2)) if rank % 2 == 0 else (odds, range(1, size, 2))
    value = torch.tensor([float(rank)])
    world = dist.all_reduce(torch.ones(1), async_op=True)
    dist.all_reduce(value, group=mine)
    same(value, [float(sum(members))])
    world.wait()
    assert dist.get_world_size(mine) == len(members)
    assert dist.get_rank(mine) == list(members).index(rank)
    backwards = dist.new_group(list(reversed(range(size))))
    value = torch.tensor([rank])
    dist.broadcast(value, src=size - 1, group=backwards)
    same(value, [size - 1])
    half = dist.split_group(split_ranks=[[0, 1], list(range(2, size))])
    value = torch.tensor([rank])
    dist.all_reduce(value, group=half)
    same(value, [1 if rank < 2 else sum(range(2, size))])
    alone, _ = dist.new_subgroups(group_size=1)
    dist.all_reduce(value, group=alone)
    same(value, [1 if rank < 2 else sum(range(2, size))])
    assert dist.get_backend(dist.new_group(backend="nccl")) == "nccl"
    with dist._coalescing_manager():
        first, second = torch.ones(3), torch.full((2,), 2.0)
        dist.all_reduce(first)
        dist.all_reduce(second)
    same(first, [float(size)] * 3)
    same(second, [2.0 * size] * 2)


def others(rank: int, size: int) -> None:
    dist.barrier()
    work = dist.all_reduce(torch.ones(3), async_op=True)
    future = work.get_future().then(lambda done: done.value()[0] * 2)
    same(future.wait(), [2.0 * size] * 3)
    assert work.is_completed()
    assert dist.get_backend() == "gloo"
    for dtype in (torch.float64, torch.bfloat16, torch.int32, torch.uint8, torch.bool, torch.complex64):
        value = torch.ones(3).to(dtype) if rank == 0 else torch.zeros(3).to(dtype)
        dist.broadcast(value, src=0)
        same(value, torch.ones(3).to(dtype))
    same(strided := torch.zeros(3, 4).t(), torch.zeros(4, 3))
    strided += rank
    dist.all_reduce(strided)
    same(strided, torch.full((4, 3), float(sum(range(size)))))


def refusals(rank: int, size: int) -> None:
    """What is not there is refused at the call, with its line, and the other ranks go on."""
    float8 = torch.zeros(2).to(torch.float8_e4m3fn)
    for call, told in (
        (lambda: rpc.init_rpc("a", rank=rank, world_size=size), "torch.distributed.rpc.init_rpc is not there"),
        (lambda: dist.autograd.context(), "torch.distributed.autograd.context is not there"),
        (lambda: dist.TCPStore("127.0.0.1", 1), "torch.distributed.TCPStore is not there"),
        (lambda: dist.all_reduce(torch.ones(2), op=dist.ReduceOp.BOR), "ReduceOp.BOR of torch.float32"),
        (lambda: dist.reduce(torch.ones(2) * 1j, 0, op=MAX), "ReduceOp.MAX of torch.complex64"),
        (lambda: dist.broadcast(float8, 0), "a tensor of torch.float8_e4m3fn in a call"),
        (lambda: dist.all_reduce(torch.eye(2).to_sparse()), "a sparse_coo tensor in a call"),
        (lambda: dist.new_group(backend="mpi"), "expected one of gloo, nccl"),
    ):
        line = f"verbs.py:{call.__code__.co_firstlineno}: "
        error = error_of(call)
        assert line in error, error
        assert told in error, error


CHECKS = (reductions, gathers, scatters, messages, waits, functionals, objects, groups, others, refusals)


def main() -> None:
    dist.init_process_group("cpu:gloo,cuda:nccl")
    assert dist.get_backend() == "cpu:gloo,cuda:nccl"
    dist.destroy_process_group()
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    for check in CHECKS:
        check(rank, size)
        print(f"{check.__name__} good", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
