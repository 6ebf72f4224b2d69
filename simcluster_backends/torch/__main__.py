"""A process started by `simcluster_backends.torch.starting`."""

from __future__ import annotations

import os
import sys

from simcluster_backends.torch.starting import obey

if __name__ == "__main__":
    code = obey()
    sys.stdout.flush()
    os._exit(code)  # threads still waiting in gloo would block an orderly exit
