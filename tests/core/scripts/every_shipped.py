"""The verbs, then every shipped script, in the same ranks, and a digest of all parameters at every step.

One run of real nodes for all: each of them loads torch. Its argument is the number of ranks.
"""

import hashlib
import runpy
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

FOLDER = Path(__file__).parents[3] / "experiments" / "scripts"
SMALL = ("--layers", "2", "--width", "32", "--heads", "2", "--length", "16")
ARGUMENTS = {
    "ddp_mlp": ("--steps", "4"),
    "gpt_cuda": ("--steps", "2", *SMALL, "--device", "cpu", "--dtype", "float32"),
    "fsdp_meta": ("--steps", "2"),
    "gpt_7b": ("--steps", "2", *SMALL, "--hidden", "64", "--words", "50"),
    "collectives": ("--numbers", "100"),
    "accelerate_mlp": ("--steps", "2", "--cpu"),
    "ddp_spawn": (),  # last: what starts its own ranks is a whole script
}


def main() -> None:
    size = sys.argv[1]
    digest = hashlib.sha256()

    def note(optimizer: Optimizer, *_: object) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
                digest.update(local.detach().contiguous().view(torch.uint8).numpy().tobytes())

    runpy.run_path(str(Path(__file__).with_name("verbs.py")), run_name="__main__")
    register_optimizer_step_post_hook(note)
    for name, args in ARGUMENTS.items():
        sys.argv = [name, *(args or [size])]
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
        assert not dist.is_initialized()
        print(f"digest {name} {digest.hexdigest()}", flush=True)


if __name__ == "__main__":
    main()
