"""Compression of what travels: one file per compressor, with error feedback where its method has it.

    compression: Compression = "none"                                   # the setting of an algorithm
    codec = Codec(compression, node.rng, "push", replica.parameters)    # once a stream: it may have a memory
    small = await codec.compress(node, gradients)                       # sender: the tensors that travel
    gradients = await codec.restore(node, message.tensors)              # any receiver, of whomever

    mean = Mean(compression, node, "gradients", replica.parameters, ring_all_reduce)
    gradients = await mean(gradients, f"gradients/{step}")              # all ranks, the same bits on each of them

In a file `compression: int8`, or `compression: {kind: top_k, fraction: 0.1}`. The wire carries the small form, and
compressing takes the device's time.
"""

from simcluster.compression.codec import Codec
from simcluster.compression.compressor import Compressor
from simcluster.compression.kinds import KINDS, Compression, compressor
from simcluster.compression.mean import Mean

__all__ = ["KINDS", "Codec", "Compression", "Compressor", "Mean", "compressor"]
