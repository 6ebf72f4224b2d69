"""The bytes of all ranks' messages in one round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from simcluster.payload import Payload, sizes_of

if TYPE_CHECKING:
    from simcluster.rounds import Rounds
    from simcluster_backends.sim.lookahead.paths import Ints


def bodies_B(rounds: Rounds, number: int, ranks: Ints) -> Any:
    """Return the bytes of each rank's tensors, or one number if all are equal."""
    return rounds.elements(number, ranks) * (rounds.tensors(number) * rounds.vector.element_size())


def header_B(rounds: Rounds, number: int, elements: int) -> int:
    """Return the bytes of the header of a message with tensors of *elements* elements."""
    hollow = torch.empty(elements, dtype=rounds.vector.dtype, device="meta")  # `new_empty` takes five times as long
    return sizes_of(rounds.tag(number), Payload((hollow,) * rounds.tensors(number)))[0]


def messages_B(rounds: Rounds, number: int, ranks: Ints) -> Any:
    """Return the bytes of each rank's message, or one number if all are equal."""
    elements = rounds.elements(number, ranks)
    least, most = int(np.min(elements)), int(np.max(elements))
    headers_B: Any = header_B(rounds, number, most)
    # A longer vector's header is never shorter.
    if least < most and header_B(rounds, number, least) != headers_B:
        lengths, places = np.unique(elements, return_inverse=True)
        headers_B = np.array([header_B(rounds, number, int(length)) for length in lengths])[places]
    return bodies_B(rounds, number, ranks) + headers_B


def sent_ahead_B(rounds: Rounds) -> int:
    """Return the maximum number of bytes sent by a rank to another that has not entered *rounds*.

    The last message does not count. Only around a ring does a rank send more than one message to a
    rank from which it has received none.
    """
    if not rounds.is_constant:
        return 0
    elements = int(rounds.elements(0, 0)) + 1  # parts differ by at most one element
    body_B = elements * rounds.tensors(0) * rounds.vector.element_size()
    return (rounds.count - 1) * (body_B + header_B(rounds, 0, elements))
