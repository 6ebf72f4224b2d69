"""Two layers, a bucket each: what DistributedDataParallel sends while the backward pass goes on."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH, BATCH, STEPS = 64, 8, 4


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False))
    model = DistributedDataParallel(layers, bucket_cap_mb=WIDTH * WIDTH * 4 / 2**20)
    inputs = torch.randn(BATCH, WIDTH)
    for step in range(STEPS):
        began_s = time.perf_counter()
        model(inputs).sum().backward()
        if dist.get_rank() == 0:
            print(f"step {step} {time.perf_counter() - began_s!r}")


if __name__ == "__main__":
    main()
