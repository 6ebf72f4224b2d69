"""Accelerate's form of the loop: it prepares model, optimizer and loader, and reduces what is printed."""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def samples(count: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(count, 64, generator=generator)
    return TensorDataset(inputs, inputs[:, :10].argmax(1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()

    accelerator = Accelerator(cpu=options.cpu)
    set_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(samples(4096), batch_size=32, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    for step, (inputs, labels) in zip(range(options.steps), loader, strict=False):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        mean = accelerator.reduce(loss.detach(), reduction="mean")
        accelerator.print(f"step {step} loss {mean.item():.6f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
