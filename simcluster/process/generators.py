"""The global random generators of this process (Python's, numpy's and torch's), from which user
code may draw.

They are seeded for a block of user code, and restored after it. The ranks of a simulation share one
process, so each rank has its own states, which are swapped in while its code runs. A swap takes
about two microseconds, since the states of Python and numpy are copied as memory. The functions of
Python and numpy for this take 20 and 200 times as long, which doubled the time of whole runs.
"""

from __future__ import annotations

import _random
import ctypes
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from simcluster.process.system_randomness import Notice, system_draws_noticed

turn = threading.RLock()
"""The lock that a thread holds while it runs user code with seeded generators.

A process has only one set of global generators.
"""

_PYTHON: Any = random._inst
_NUMPY: Any = np.random
_HEADER_BYTES = object.__basicsize__


def _memory(place: int, size_bytes: int) -> memoryview:
    """Return a writable view of *size_bytes* of this process's memory at the address *place*."""
    return memoryview((ctypes.c_char * size_bytes).from_address(place)).cast("B")


_STATE_BYTES = _random.Random.__basicsize__ - _HEADER_BYTES
_IS_PLAIN = _STATE_BYTES - 4 * 625 in (0, 4)
"""Whether Python's generator is a header and 625 words, perhaps padded, as in all CPython so far.

Only then is its state plain memory, without references.
"""
_PYTHON_STATE = _memory(id(_PYTHON) + _HEADER_BYTES, _STATE_BYTES)


def _python_state() -> Any:
    return _PYTHON_STATE.tobytes() if _IS_PLAIN else _PYTHON.getstate()


def _set_python_state(state: Any) -> None:
    if _IS_PLAIN:
        _PYTHON_STATE[:] = state
    else:
        _PYTHON.setstate(state)


@contextmanager
def seeded(sequence: np.random.SeedSequence) -> Iterator[Callable[[], bool]]:
    """Seed the generators from *sequence* for a block, and restore them afterwards.

    Yield a function that returns whether the block has drawn from them.
    """
    with _kept():
        _seed(sequence)
        first = copied()
        yield lambda: copied() != first


def _seed(sequence: np.random.SeedSequence) -> None:
    import torch

    for_python, for_torch = map(int, sequence.generate_state(2, np.uint64))
    random.seed(for_python)
    _NUMPY.seed(sequence.generate_state(8))
    # torch.manual_seed also seeds accelerators. Before one is initialised, it records each call
    # with its stack, which takes 0.2 to 0.8 ms; without an accelerator, seed the CPU's generator
    # directly.
    seed = torch.default_generator.manual_seed if torch.accelerator.current_accelerator() is None else torch.manual_seed
    seed(for_torch & (2**63 - 1))


def copied() -> tuple[object, ...]:
    """Return the states of the generators on the host, for comparison."""
    import torch

    _, key, *more = _NUMPY.get_state()
    return random.getstate(), bytes(key), *more, torch.get_rng_state().tolist()


@contextmanager
def _kept() -> Iterator[None]:
    """Restore the generators after the block.

    Within it, numpy's is a Mersenne Twister, even if the user has set another: `GeneratorStates`
    copies its memory.
    """
    import torch

    cuda: Any = torch.cuda
    cards = cuda.device_count() if cuda.is_initialized() else 0
    python = random.getstate()
    numpy = _NUMPY.get_state(legacy=False)
    numpys = _NUMPY.get_bit_generator()
    _NUMPY.set_bit_generator(np.random.MT19937(0))
    try:
        with torch.random.fork_rng(range(cards)):
            yield
    finally:
        random.setstate(python)
        _NUMPY.set_bit_generator(numpys)
        _NUMPY.set_state(numpy)


@dataclass(eq=False)
class GeneratorStates:
    """The states of one rank's generators while another rank's are in place.

    *notice* is called for draws of this rank from the system's randomness.
    """

    notice: Notice
    python: Any = b""
    numpy: bytes = b""
    torch: Any = None
    # Normally distributed numbers are drawn in pairs: a generator keeps the second for its next
    # call.
    pythons_next: Any = None
    numpys_next: float | None = None


of_rank: ContextVar[GeneratorStates | None] = ContextVar("of_rank", default=None)
"""The generator states of the rank that runs in this context; None outside ranks."""


class RankGenerators:
    """The generators of all ranks in this process.

    One rank's states are in place at a time; when no rank is *live*, the caller's are.
    """

    def __init__(self) -> None:
        self.live = 0
        self._installed: GeneratorStates | None = None
        self._caller = ExitStack()
        self._torch: Any = None

    @contextmanager
    def own(self, sequence: np.random.SeedSequence, notice: Notice) -> Iterator[None]:
        """Give a rank, which runs in this context, generators seeded from *sequence*."""
        if not self.live:
            self._begin()
        self._leave()
        self.live += 1
        _seed(sequence)
        self._installed = own = GeneratorStates(notice)
        self._save(own)
        of_rank.set(own)
        try:
            yield
        finally:
            of_rank.set(None)
            self._installed = None if self._installed is own else self._installed
            self.live -= 1
            if not self.live:
                self._caller.close()

    def enter(self, own: GeneratorStates | None) -> None:
        """Put the states *own* in place, before code of their rank runs.

        If *own* is None, the code belongs to no rank and draws nothing, so leave the states
        unchanged.
        """
        if own is None or own is self._installed:
            return
        left = self._leave()
        _set_python_state(own.python)
        self._numpy_state[:] = own.numpy
        _PYTHON.gauss_next = own.pythons_next
        # The second number that numpy keeps is not in the copied memory. Setting it is slow, so do
        # it only if one of the two ranks has such a number.
        if own.numpys_next is not None or left is None or left.numpys_next is not None:
            pending = {"has_gauss": int(own.numpys_next is not None), "gauss": own.numpys_next or 0.0}
            _NUMPY.set_state({**_NUMPY.get_state(legacy=False), **pending})
        self._torch.set_state(own.torch)
        self._installed = own

    def _begin(self) -> None:
        """Save the caller's generators; wait while another thread uses seeded ones."""
        import torch

        self._caller.enter_context(turn)
        self._caller.enter_context(_kept())
        self._caller.enter_context(
            system_draws_noticed(lambda *told: self._installed and self._installed.notice(*told))
        )
        self._numpy = _NUMPY.get_bit_generator()  # this reference keeps its memory alive
        # The state is 624 words, and a position among them.
        self._numpy_state = _memory(self._numpy.ctypes.state_address, 4 * 625)
        self._torch = torch.default_generator

    def _leave(self) -> GeneratorStates | None:
        """Save and return the states that are in place."""
        if self._installed is not None:
            self._save(self._installed)
        return self._installed

    def _save(self, own: GeneratorStates) -> None:
        own.python, own.pythons_next = _python_state(), _PYTHON.gauss_next
        numpy = self._numpy_state.tobytes()
        # A stored second number can only appear after a draw, which changes the memory.
        if own.numpys_next is not None or numpy != own.numpy:
            found = _NUMPY.get_state(legacy=False)
            own.numpy, own.numpys_next = numpy, found["gauss"] if found["has_gauss"] else None
        own.torch = self._torch.get_state()


RANKS = RankGenerators()
