"""Compression of messages. Each compressor has a file, and uses error feedback if its method does.

    compression: Compression = "none"                                   # the setting of an algorithm
    codec = Codec(compression, node.rng, "push", replica.parameters)    # one per stream: it may have a memory
    small = await codec.compress(node, gradients)                       # sender: the tensors to send
    gradients = await codec.restore(node, message.tensors)              # any receiver, from any sender

    mean = Mean(compression, node, "gradients", replica.parameters, ring_all_reduce)
    gradients = await mean(gradients, f"gradients/{step}")              # on all ranks, the same bits

In a file: `compression: int8`, or `compression: {kind: top_k, fraction: 0.1}`. Messages have the
compressed size, and compression takes device time.
"""

from simcluster.compression.codec import Codec
from simcluster.compression.compressor import Compressor
from simcluster.compression.kinds import KINDS, Compression, compressor
from simcluster.compression.mean import Mean

__all__ = ["KINDS", "Codec", "Compression", "Compressor", "Mean", "compressor"]
