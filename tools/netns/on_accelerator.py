"""Run a script with its arguments as if an accelerator computed its gradients.

Each backward pass begins with a pause. For scripts without gradients, each barrier ends with one.
The ranks have different pauses, so that their other work rarely competes for the machine's cores.
"""

import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

PAUSES_S = (0.25, 0.3)


def main() -> None:
    pause_s = PAUSES_S[int(os.environ["RANK"])]
    real_backward = torch.autograd.backward
    real_barrier = dist.barrier

    def backward(*args: Any, **how: Any) -> None:
        time.sleep(pause_s)
        real_backward(*args, **how)

    def barrier(*args: Any, **how: Any) -> None:
        real_barrier(*args, **how)
        time.sleep(pause_s)

    torch.autograd.backward = backward
    dist.barrier = barrier
    del sys.argv[0]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
