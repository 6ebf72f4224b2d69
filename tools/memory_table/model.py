"""A language model of a size in bytes, whose evaluation is small: the table is about weights."""

from __future__ import annotations

from dataclasses import replace

from simcluster.workloads import Workload
from simcluster.workloads.data.samples import Samples
from simcluster.workloads.models.gpt import gpt


def model(*, layers: int = 4, width: int = 1024) -> Workload:
    """Return a GPT of *layers*, each of 12 *width*^2 parameters, on windows of 16 bytes, with 8 held out."""
    whole = gpt(layers=layers, width=width, heads=8, context=16, batch_size=1)
    assert isinstance(whole.test, Samples)
    return replace(whole, name="", test=Samples(whole.test.inputs[:8], whole.test.targets[:8]))
