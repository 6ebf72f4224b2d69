"""DistributedDataParallel in the form of the tutorials: the script starts its ranks itself."""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(rank: int, world_size: int, steps: int) -> None:
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.manual_seed(7)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(rank)
    for step in range(steps):
        inputs = torch.randn(16, 32, generator=generator)
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses = [torch.zeros(()) for _ in range(world_size)]
        dist.all_gather(losses, loss.detach())
        if rank == 0:
            print(f"step {step} loss {sum(losses).item() / world_size:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    mp.spawn(train, args=(ranks, 20), nprocs=ranks, join=True)
