"""Plain collectives and messages, without a model: a mean, a ring of messages, objects and groups."""

import argparse

import torch
import torch.distributed as dist


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--numbers", type=int, default=1000)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    pair = dist.new_group([0, size - 1])
    for step in range(5):
        value = torch.arange(options.numbers, dtype=torch.float32) * (rank + 1 + step)
        work = dist.all_reduce(value, async_op=True)
        received = torch.zeros(10)
        sending = dist.isend(torch.full((10,), float(rank)), (rank + 1) % size)
        dist.recv(received, (rank - 1) % size)
        sending.wait()
        work.wait()
        highest = torch.tensor([rank * 10 + step])
        dist.all_reduce(highest, op=dist.ReduceOp.MAX)
        told: list[object] = [None] * size
        dist.all_gather_object(told, {"rank": rank, "from": received[0].item()})
        shared = torch.tensor([3.0 if rank == 0 else -1.0])
        if rank in (0, size - 1):
            dist.broadcast(shared, src=0, group=pair)
        parts = list(torch.arange(size * 2, dtype=torch.int64).view(size, 2) + 100 * rank)
        exchanged = [torch.zeros(2, dtype=torch.int64) for _ in range(size)]
        dist.all_to_all(exchanged, parts) if dist.get_backend() != "gloo" else None
        dist.barrier()
        if rank == 0:
            print(f"step {step} loss {value.sum().item():.1f} {highest.item()} {told} {shared.item()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
