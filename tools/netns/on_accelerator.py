"""Run a script, given with its arguments, as if an accelerator made its gradients.

Each backward pass begins with a pause; in a script without gradients a barrier is followed by one. No two ranks have
the same: all hosts share the cores of one machine, and in turns their other work does not wait for a core.
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
    real_backward, real_barrier = torch.autograd.backward, dist.barrier

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
