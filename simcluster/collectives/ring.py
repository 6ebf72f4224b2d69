"""All-reduce around a ring (Patarasuk and Yuan 2009): the least bytes any all-reduce can send.

With p ranks, M bytes, latency a and bandwidth B: 2 (p-1) (a + M/(pB)) on a full-duplex star, 2 (p-1)/p M bytes sent
by every rank.

This file knows ranks and one vector. It must not know a backend, nor what the vector is for.
"""

from __future__ import annotations

from torch import Tensor

from simcluster.collectives.exchange import exchange
from simcluster.transport import Transport


async def ring_all_reduce(node: Transport, vector: Tensor, tag: str) -> Tensor:
    """The sum of every rank's *vector* (1-D, equal length), the same bits on all of them; *vector* is left alone.

    Chunk c is summed in the order c, c+1, ..., c+p-1 (mod p).
    """
    if vector.is_meta:
        return await _ring_of_nothing(node, vector, tag)
    size, rank = node.size, node.rank
    right, left = (rank + 1) % size, (rank - 1) % size
    result = vector.clone()
    chunks = result.tensor_split(size)

    # reduce-scatter: after p-1 steps rank r holds the sum of chunk r+1
    for step in range(size - 1):
        outgoing, incoming = chunks[(rank - step) % size], chunks[(rank - step - 1) % size]
        message = await exchange(node, right, left, f"{tag}/scatter{step}", outgoing)
        incoming.copy_(message.tensor.add_(incoming))

    # all-gather: the finished chunks go round once
    for step in range(size - 1):
        outgoing, incoming = chunks[(rank + 1 - step) % size], chunks[(rank - step) % size]
        message = await exchange(node, right, left, f"{tag}/gather{step}", outgoing)
        incoming.copy_(message.tensor)
    return result


async def _ring_of_nothing(node: Transport, vector: Tensor, tag: str) -> Tensor:
    """The same messages without values, where only time is asked for: in both phases round k sends chunk r - k."""
    size, rank = node.size, node.rank
    right, left = (rank + 1) % size, (rank - 1) % size
    each, longer = divmod(len(vector), size)  # as tensor_split cuts
    lengths = [each + 1] * longer + [each] * (size - longer)

    def tag_of(number: int) -> str:
        return f"{tag}/scatter{number}" if number < size - 1 else f"{tag}/gather{number - size + 1}"

    # A simulator may know how the first rounds end without going through them.
    ahead = getattr(node, "ring_ahead", None)
    over = 0 if ahead is None else await ahead(vector, lengths, tag_of)
    for number in range(over, 2 * (size - 1)):
        await exchange(node, right, left, tag_of(number), vector.narrow(0, 0, lengths[(rank - number) % size]))
    return vector
