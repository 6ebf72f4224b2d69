"""Run a script, given with its arguments, as if an accelerator made its gradients.

Each backward pass begins with a pause. No two ranks have the same: all hosts share the cores of one machine, and in
turns their other work does not wait for a core.
"""

import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import torch

PAUSES_S = (0.25, 0.3)


def main() -> None:
    pause_s = PAUSES_S[int(os.environ["RANK"])]
    real = torch.autograd.backward

    def backward(*args: Any, **how: Any) -> None:
        time.sleep(pause_s)
        real(*args, **how)

    torch.autograd.backward = backward
    del sys.argv[0]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
