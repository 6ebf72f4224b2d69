"""DistributedDataParallel in its plainest form; run it with torchrun, or with `simcluster run --script`."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def samples(count: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(count, 64, generator=generator)
    return TensorDataset(inputs, inputs[:, :10].argmax(1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--lr", type=float, default=0.1)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(64, options.hidden), nn.ReLU(), nn.Linear(options.hidden, 10))
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    data = samples(8192)
    sampler = DistributedSampler(data, seed=1)
    loader = iter(DataLoader(data, batch_size=32, sampler=sampler))

    for step in range(options.steps):
        inputs, labels = next(loader)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total, op=dist.ReduceOp.AVG if dist.get_backend() == "nccl" else dist.ReduceOp.SUM)
        if rank == 0:
            print(f"step {step} loss {total.item() / dist.get_world_size():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
