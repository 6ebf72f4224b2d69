"""A GPT of 7 billion parameters, fully sharded block by block, made without memory: one step with AdamW, in bfloat16.

On a machine that does not hold it: `simcluster run --script gpt_7b.py --topology T --set numerics=none`.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        normed = self.norm_2(x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))


class Gpt(nn.Module):
    def __init__(self, words: int, length: int, width: int, layers: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, hidden) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), targets.flatten())


def sharded(model: Gpt, device: str) -> Gpt:
    """Return *model* sharded, block by block, with memory for this rank's part on *device*, and filled."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    model.to_empty(device=device)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.02) if parameter.dim() > 1 else nn.init.ones_(parameter)
    return model


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("steps", 1), ("layers", 32), ("width", 4096), ("heads", 32), ("hidden", 11008)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in (("words", 32000), ("length", 2048), ("batch", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    torch.manual_seed(dist.get_rank())
    with torch.device("meta"):
        model = Gpt(options.words, options.length, options.width, options.layers, options.heads, options.hidden)
    count = sum(parameter.numel() for parameter in model.parameters())
    model = sharded(model, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(options.steps):
        began_s = time.time()
        rows = torch.randint(options.words, (options.batch, options.length + 1), device=device)
        loss = model(rows[:, :-1], rows[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            peak = f"{torch.cuda.max_memory_allocated() / 1e9:.2f} GB" if device == "cuda" else "unknown"
            took_s = time.time() - began_s
            size = f"{count / 1e9:.2f} B parameters"
            print(f"step {step} loss {loss.item():.6f} of {size} in {took_s:.3f} s, peak memory {peak}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
