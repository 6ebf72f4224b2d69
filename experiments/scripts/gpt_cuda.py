"""A GPT in one file, in the style in which people train them on GPUs: cuda, nccl, bf16, a scaler, a compiled model."""

import argparse
import contextlib
import math
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm_2(x))))


class Gpt(nn.Module):
    def __init__(self, words: int, length: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.tokens.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("steps", 20), ("layers", 4), ("width", 128), ("heads", 4), ("length", 64), ("batch", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    options = parser.parse_args()

    on_gpu = options.device == "cuda"
    dist.init_process_group(backend="nccl" if on_gpu else "gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    device = f"cuda:{os.environ['LOCAL_RANK']}" if on_gpu else "cpu"
    if on_gpu:
        torch.cuda.set_device(device)
    torch.manual_seed(1337)
    dtype = getattr(torch, options.dtype)
    scaler = torch.amp.GradScaler(options.device, enabled=dtype == torch.float16)
    context = contextlib.nullcontext()
    if dtype != torch.float32:
        context = torch.amp.autocast(device_type=options.device, dtype=dtype)

    model = Gpt(256, options.length, options.width, options.layers, options.heads).to(device)
    if on_gpu:
        model = torch.compile(model)
    model = DistributedDataParallel(model, device_ids=[int(os.environ["LOCAL_RANK"])] if on_gpu else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    generator = torch.Generator().manual_seed(100 + rank)
    text = (torch.arange(8192) * 17 % 251 + torch.randint(0, 4, (8192,), generator=generator)) % 256

    began_s = time.time()
    for step in range(options.steps):
        starts = torch.randint(len(text) - options.length - 1, (options.batch,), generator=generator)
        rows = torch.stack([text[start : start + options.length + 1] for start in starts])
        tokens, targets = rows[:, :-1], rows[:, 1:]
        if on_gpu:
            tokens = tokens.pin_memory().to(device, non_blocking=True)
            targets = targets.pin_memory().to(device, non_blocking=True)
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, (step + 1) / 5) * 0.5 * (1 + math.cos(math.pi * step / options.steps))
        with context:
            loss = model(tokens, targets)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        mean = loss.detach().float().reshape(1)
        dist.all_reduce(mean)
        if rank == 0:
            took_ms = 1000 * (time.time() - began_s) / (step + 1)
            print(f"step {step} loss {mean.item() / world_size:.6f} in {took_ms:.2f} ms", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
