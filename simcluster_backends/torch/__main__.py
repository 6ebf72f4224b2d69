"""A process that `simcluster_backends.torch.starting` has started."""

from __future__ import annotations

import os
import sys

from simcluster_backends.torch.starting import obey

if __name__ == "__main__":
    code = obey()
    sys.stdout.flush()
    os._exit(code)  # threads in which gloo still waits would hold an orderly exit up
