"""Fully sharded data parallel training of a model that is made without memory, then filled shard by shard."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

    def reset_parameters(self) -> None:
        for module in (self.norm, self.up, self.down):
            module.reset_parameters()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--width", type=int, default=96)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    width = options.width
    with torch.device("meta"):
        model = nn.Sequential(*[Layer(width) for _ in range(3)], nn.Linear(width, 10))
    policy = MixedPrecisionPolicy(reduce_dtype=torch.float32)
    for layer in model:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    model.to_empty(device="cpu")
    torch.manual_seed(3)
    for layer in model:
        layer.reset_parameters()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(options.steps):
        inputs = torch.randn(16, width, generator=generator)
        loss = nn.functional.cross_entropy(model(inputs), inputs[:, :10].argmax(1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if rank == 0:
            print(f"step {step} loss {total.item() / size:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
