"""`python -m tools.benchmarks.script_steps`: the wall time of a simulated step relative to
torchrun's.

Both sides run this file as a script with RANKS ranks on this machine, and alternate. The models are
the MLP of the quickstart with batches of 32, and a GPT of 10 million weights with batches of 8.
docs/scripts.md has the ratios.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

RANKS = 4
ROUNDS = 5
STEPS = {"mlp": 300, "gpt": 6}
MOST = {"mlp": 3.0, "gpt": 1.5}
HERE = Path(__file__)
SCRIPTS = HERE.parents[2] / "experiments" / "scripts"

TOPOLOGY = f"{{generator: star, workers: {RANKS}, device: raspberry-pi-4, bandwidth: 1 Gbps, latency: 100 us}}"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        topology = Path(folder) / "star.yaml"
        topology.write_text(TOPOLOGY)
        simulated = [command("simcluster"), "run", "--topology", str(topology), "--out", f"{folder}/run", "--no-report"]
        simulated += ["--script", str(HERE), "--"]
        real = [command("torchrun"), f"--nproc-per-node={RANKS}", str(HERE)]
        for model in STEPS:
            pairs = [(step_s([*simulated, model]), step_s([*real, model])) for _ in range(ROUNDS)]
            ours_s, theirs_s = (statistics.median(column) for column in zip(*pairs, strict=True))
            ratio = statistics.median(a / b for a, b in pairs)
            print(
                f"{model}: {ours_s * 1e3:.1f} ms a step, torchrun {theirs_s * 1e3:.1f} ms; "
                f"ratio {ratio:.2f}, goal {MOST[model]:g}",
                flush=True,
            )


def command(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def step_s(words: list[str]) -> float:
    """Run the command *words*. Return the seconds per step that rank 0 prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    output = done.stdout + done.stderr
    # Ignore the exit code: with torch 2.13, a rank may abort at its end, after all its work.
    if "a step took " not in output:
        raise RuntimeError(f"{' '.join(words)}: exit code {done.returncode}\n{output}")
    return float(output.partition("a step took ")[2].split()[0])


def script(name: str) -> None:
    """Train as a rank of either side, and print the wall time per step.

    `clock_gettime` reads the machine's clock even in the simulator.
    """
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model, inputs, labels = mlp() if name == "mlp" else gpt()
    trained = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-3)
    began_s = 0.0
    for step in range(STEPS[name]):
        if step == 1:
            began_s = time.clock_gettime(time.CLOCK_MONOTONIC)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(trained(inputs), labels) if name == "mlp" else trained(inputs, labels)
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        took_s = (time.clock_gettime(time.CLOCK_MONOTONIC) - began_s) / (STEPS[name] - 1)
        print(f"a step took {took_s} s", flush=True)
    dist.destroy_process_group()


def mlp() -> tuple[nn.Module, Tensor, Tensor]:
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    return model, torch.randn(32, 784), torch.randint(10, (32,))


def gpt() -> tuple[nn.Module, Tensor, Tensor]:
    sys.path.insert(0, str(SCRIPTS))
    from gpt_cuda import Gpt

    return Gpt(1000, 128, 384, 5, 6), torch.randint(1000, (8, 128)), torch.randint(1000, (8, 128))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        script(sys.argv[1])
    else:
        main()
