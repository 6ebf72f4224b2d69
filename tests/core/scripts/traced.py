"""A script with calls of several kinds, which logs its losses; they are printed to the last bit."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import simcluster

STEPS = 3


def main() -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1))
    model = DistributedDataParallel(layers, bucket_cap_mb=0.001)  # a bucket for each layer
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(rank)
    ends = dist.new_group([0, size - 1])
    for step in range(STEPS):
        inputs = torch.randn(8, 32, generator=generator)
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        optimizer.zero_grad()
        if rank == 1:
            time.sleep(0.2)  # so that the others wait for it, at the end of their backward passes
        loss.backward()
        optimizer.step()
        if rank in (0, size - 1):
            dist.broadcast(torch.ones(100), src=0, group=ends)
        works = [dist.isend(torch.ones(50), (rank + 1) % size), dist.irecv(torch.ones(50), (rank - 1) % size)]
        for work in works:
            work.wait()
        simcluster.log(step=step + 1, loss=loss)
        print(f"step {step + 1} {loss.item().hex()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
