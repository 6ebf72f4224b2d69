"""A process group made by gloo, for scripts under `--backend torch`.

It reports its calls, and the waits for them, to the node program. Otherwise gloo makes each call as
it would under torchrun, with gloo's schedules and order of sums.
"""

from __future__ import annotations

import datetime
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
import torch.autograd.graph
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore  # typed only there

from simcluster.scripts.messages import CallsTraced, TracedSpan
from simcluster.scripts.rank.node_link import NodeLink, refuse
from simcluster.scripts.rank.process_group import ScriptGroup

_OPERATIONS = {
    "all_reduce": "allreduce allreduce_coalesced",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "all_gather": "allgather allgather_coalesced all_gather_single all_gather_single_coalesced _allgather_base "
    "allgather_into_tensor_coalesced",
    "gather": "gather",
    "scatter": "scatter",
    "reduce_scatter": "reduce_scatter reduce_scatter_single reduce_scatter_single_coalesced _reduce_scatter_base "
    "reduce_scatter_tensor_coalesced",
    "all_to_all": "alltoall all_to_all_single alltoall_base",
    "barrier": "barrier",
    "send": "send",
    "recv": "recv recv_anysource",
}
"""Name of a call in the record -> names of the methods of torch's process group that make the
call.
"""

LOOPBACK = "127.0.0.1"

_now_s = time.perf_counter  # bound now, in case the script replaces it later


class TracedCall:
    """A call that gloo makes. It usually ends in one of gloo's threads."""

    def __init__(self, group: int, operation: str, size_bytes: int) -> None:
        self.about = group, operation, size_bytes
        self.start_s = _now_s()
        self.end_s: float | None = None

    def end(self, _: object = None) -> None:
        """Record that the call has just ended, unless its end has been recorded before."""
        if self.end_s is None:
            self.end_s = _now_s()


class CallTrace:
    """The calls of this process, which are reported over *link* when the script starts or ends a
    wait.
    """

    def __init__(self, link: NodeLink) -> None:
        self._link = link
        self._calls: list[TracedCall] = []
        self._waits: list[TracedSpan] = []
        self._waiting: tuple[TracedCall, float] | None = None
        self._backward = -1

    def issued(self, call: TracedCall, work: Any, *, by_reducer: bool) -> TracedWork:
        """Record that *call* has started as gloo's *work*. Return a work that also records the
        waits for it.

        *by_reducer*: DistributedDataParallel made the call in a backward pass, and will wait for it
        in C++ at the end of that pass.
        """
        self._calls.append(call)
        with suppress(RuntimeError):  # a send or recv has no future; the wait for it ends it
            work.get_future().add_done_callback(call.end)
        if by_reducer:
            self._note_end_of_backward(call)
        return TracedWork(self, call, work)

    def begin_wait(self, call: TracedCall) -> None:
        """Report that the script waits for *call*."""
        self.end_wait()
        self._waiting = call, _now_s()
        self._link.tell(CallsTraced(waits=True, spans=self._ended()))

    def end_wait(self) -> None:
        """Report that the script no longer waits, if it was waiting."""
        if self._waiting is None:
            return
        call, start_s = self._waiting
        self._waiting = None
        self._waits.append(TracedSpan("wait", *call.about, start_s, _now_s()))
        self.flush()

    def flush(self) -> None:
        """Report all spans that have ended since the last report."""
        self._link.tell(CallsTraced(waits=False, spans=self._ended()))

    def _ended(self) -> list[TracedSpan]:
        spans, self._waits = self._waits, []
        pending = []
        for call in self._calls:
            if call.end_s is None:
                pending.append(call)
            else:
                spans.append(TracedSpan("call", *call.about, call.start_s, call.end_s))
        self._calls = pending
        return spans

    def _note_end_of_backward(self, call: TracedCall) -> None:
        """Record the wait of the reducer at the end of a backward pass, by one callback before the
        reducer's own and one after it.

        Callbacks run in the order in which they are queued, and the reducer queues its own at the
        last bucket. The callback that is queued here, at the first bucket, therefore runs before
        it. This callback queues the second one, which runs after it.
        """
        number = torch._C._current_graph_task_id()
        if number == self._backward:
            return
        self._backward = number
        queue = torch.autograd.Variable._execution_engine.queue_callback

        def wait() -> None:
            self.begin_wait(call)
            queue(self.end_wait)

        queue(wait)


class TracedWork(dist._Work):  # type: ignore[name-defined, misc]
    """A wrapper of gloo's *work* that records the waits for it."""

    def __init__(self, trace: CallTrace, call: TracedCall, work: Any) -> None:
        super().__init__()
        self._trace = trace
        self._call = call
        self._work = work

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        limits = (timeout,) if timeout else ()
        if self._work.is_completed():
            return bool(self._work.wait(*limits))  # raises if the call has failed
        self._trace.begin_wait(self._call)
        try:
            return bool(self._work.wait(*limits))
        finally:
            self._call.end()
            self._trace.end_wait()

    synchronize = wait


for _name in ("is_completed", "is_success", "exception", "result", "get_future", "_source_rank"):
    setattr(TracedWork, _name, lambda work, name=_name: getattr(work._work, name)())


class GlooGroups:
    """The factory of the process groups in a rank's process.

    The ranks meet at a host and port, as torchrun's ranks meet at its store.
    """

    def __init__(self, link: NodeLink, meeting: tuple[str, int]) -> None:
        self.trace = CallTrace(link)
        self._link = link
        self._host, self._port = meeting
        self._begun = 0
        self._kept: list[GlooGroup] = []
        own_store = {"MASTER_ADDR": self._host, "MASTER_PORT": str(self._port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
        os.environ |= own_store

    def store(self) -> Store:
        """Return a store that all ranks share; each call of `init_process_group` gets a new one."""
        self._begun += 1
        return PrefixStore(f"script {self._begun}", TCPStore(self._host, self._port, is_master=False))

    def make(self, options: Any, ranks: Sequence[int], asked: str) -> GlooGroup:
        """Return a group of *ranks*, made with torch's *options*.

        Raise NotImplementedError unless *asked*, the backend that the script names, includes gloo.
        """
        if "gloo" not in asked:
            refuse(f"the backend {asked!r}", "under --backend torch calls are gloo's")
        made = GlooGroup(self._link, self.trace, options, ranks, is_local=self._host == LOOPBACK)
        # Keep every group, since torch 2.13 may hang when a group is deleted: it joins one of
        # gloo's threads with Python's lock held, and that thread may be waiting for the lock to
        # delete a tensor.
        self._kept.append(made)
        return made


class GlooGroup(ScriptGroup):
    """A group of world *ranks*, which gloo makes from torch's *options*.

    *is_local*: all ranks are on this machine, so gloo uses the loopback interface.
    """

    def __init__(self, link: NodeLink, trace: CallTrace, options: Any, ranks: Sequence[int], *, is_local: bool) -> None:
        super().__init__(link, options.group_rank, ranks, "gloo")
        self._trace = trace
        place = (options.store, options.group_rank, options.group_size)
        group: Any = dist.ProcessGroup
        self._gloo = group(*place)  # as `init_process_group("gloo")` would make it
        self._gloo._set_default_backend(group.BackendType.GLOO)
        if is_local:
            given = dist.ProcessGroupGloo._Options()
            given._timeout = options.timeout
            given._devices = [dist.ProcessGroupGloo.create_device(hostname=LOOPBACK)]
            gloo: Any = dist.ProcessGroupGloo(*place, given)
        else:  # without options gloo obeys GLOO_SOCKET_IFNAME
            gloo = dist.ProcessGroupGloo(*place, timeout=options.timeout)
        gloo._set_sequence_number_for_group()
        self._gloo._register_backend(torch.device("cpu"), group.BackendType.GLOO, gloo)


def _traced(verb: str, operation: str) -> Callable[..., TracedWork]:
    def call(self: GlooGroup, *args: Any, **more: Any) -> TracedWork:
        self._link.on_call(operation)
        # The reducer of DistributedDataParallel calls from C++, so the calling Python frame is the
        # autograd engine's.
        by_reducer = sys._getframe(1).f_code.co_filename == torch.autograd.graph.__file__
        noted = TracedCall(self._number, operation, max((_bytes_of(one) for one in args), default=0))
        return self._trace.issued(noted, getattr(self._gloo, verb)(*args, **more), by_reducer=by_reducer)

    return call


for _operation, _verbs in _OPERATIONS.items():
    for _verb in _verbs.split():
        setattr(GlooGroup, _verb, _traced(_verb, _operation))


def _bytes_of(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.nbytes
    return sum(map(_bytes_of, value)) if isinstance(value, (list, tuple)) else 0
