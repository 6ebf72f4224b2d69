"""A language model of a given size in bytes.

Its evaluation needs little memory, so that weights dominate the measurements.
"""

from __future__ import annotations

from dataclasses import replace

from simcluster.workloads import Workload
from simcluster.workloads.data.samples import Samples
from simcluster.workloads.models.gpt import gpt


def model(*, layers: int = 4, width: int = 1024) -> Workload:
    """Return a GPT with *layers* layers of 12 *width*^2 parameters each.

    It reads windows of 16 bytes. An evaluation uses 8 of the windows.
    """
    whole = gpt(layers=layers, width=width, heads=8, context=16, batch_size=1)
    assert isinstance(whole.test, Samples)
    return replace(whole, name="", test=Samples(whole.test.inputs[:8], whole.test.targets[:8]))
