"""A process group of gloo's, for scripts under `--backend torch`: its calls, and waits for them, are noted and told.

Nothing but notes is added: gloo makes each call as it would under torchrun, with its own schedules and sums.
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
"""Name of a call in the record -> the verbs of torch that are such calls."""

LOOPBACK = "127.0.0.1"

_now_s = time.perf_counter  # whatever the script makes of it later


class TracedCall:
    """A call of gloo's, which ends in a thread of gloo's."""

    def __init__(self, group: int, operation: str, size_bytes: int) -> None:
        self.about = group, operation, size_bytes
        self.start_s = _now_s()
        self.end_s: float | None = None

    def end(self, _: object = None) -> None:
        """Note that the call has ended by now."""
        if self.end_s is None:
            self.end_s = _now_s()


class CallTrace:
    """The calls of this process, told by *link* whenever the script begins or ends a wait for one."""

    def __init__(self, link: NodeLink) -> None:
        self._link = link
        self._calls: list[TracedCall] = []
        self._waits: list[TracedSpan] = []
        self._waiting: tuple[TracedCall, float] | None = None
        self._backward = -1

    def issued(self, call: TracedCall, work: Any, *, by_reducer: bool) -> TracedWork:
        """Note that *call* is made as *work*, and return a work that notes where it is waited for.

        *by_reducer*: DistributedDataParallel called in its backward pass, and will wait in C++ at the end of it.
        """
        self._calls.append(call)
        with suppress(RuntimeError):  # messages have no future: they end where they are waited for
            work.get_future().add_done_callback(call.end)
        if by_reducer:
            self._note_end_of_backward(call)
        return TracedWork(self, call, work)

    def begin_wait(self, call: TracedCall) -> None:
        """Tell that the script waits for *call*."""
        self.end_wait()
        self._waiting = call, _now_s()
        self._link.tell(CallsTraced(waits=True, spans=self._ended()))

    def end_wait(self) -> None:
        """Tell that the script waits no more, if it did."""
        if self._waiting is None:
            return
        call, start_s = self._waiting
        self._waiting = None
        self._waits.append(TracedSpan("wait", *call.about, start_s, _now_s()))
        self.flush()

    def flush(self) -> None:
        """Tell of all that has ended."""
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
        """Note the wait of the reducer: callbacks of a backward pass run in turn at its end, and one is the reducer's.

        It comes with the last bucket, so after the one that is queued with the first; what that one queues comes last.
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
    """*work* of gloo's, with notes of its waits."""

    def __init__(self, trace: CallTrace, call: TracedCall, work: Any) -> None:
        super().__init__()
        self._trace, self._call, self._work = trace, call, work

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        limits = (timeout,) if timeout else ()
        if self._work.is_completed():
            return bool(self._work.wait(*limits))  # it raises if the call has failed
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
    """Makes the groups of a process. Its ranks *meet* at a host and port, as those of torchrun meet at its store."""

    def __init__(self, link: NodeLink, meeting: tuple[str, int]) -> None:
        self.trace = CallTrace(link)
        self._link = link
        self._host, self._port = meeting
        self._begun = 0
        self._kept: list[GlooGroup] = []
        own_store = {"MASTER_ADDR": self._host, "MASTER_PORT": str(self._port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
        os.environ |= own_store

    def store(self) -> Store:
        """Return a store of all ranks, another one at each `init_process_group`."""
        self._begun += 1
        return PrefixStore(f"script {self._begun}", TCPStore(self._host, self._port, is_master=False))

    def make(self, options: Any, ranks: Sequence[int], asked: str) -> GlooGroup:
        """Make the group that torch asks for by *options*. Refuse another backend than gloo."""
        if "gloo" not in asked:
            refuse(f"the backend {asked!r}", "under --backend torch calls are gloo's")
        made = GlooGroup(self._link, self.trace, options, ranks, is_local=self._host == LOOPBACK)
        # torch 2.13 may hang where a group is deleted: it joins a thread of gloo's with Python's lock held, and that
        # thread may wait for the lock to delete a tensor.
        self._kept.append(made)
        return made


class GlooGroup(ScriptGroup):
    """The group of the world *ranks*, made by gloo out of torch's *options*, on this machine alone if *is_local*."""

    def __init__(self, link: NodeLink, trace: CallTrace, options: Any, ranks: Sequence[int], *, is_local: bool) -> None:
        super().__init__(link, options.group_rank, ranks, "gloo")
        self._trace = trace
        place = (options.store, options.group_rank, options.group_size)
        group: Any = dist.ProcessGroup
        self._gloo = group(*place)  # as `init_process_group("gloo")` makes it
        self._gloo._set_default_backend(group.BackendType.GLOO)
        if is_local:
            given = dist.ProcessGroupGloo._Options()
            given._timeout = options.timeout
            given._devices = [dist.ProcessGroupGloo.create_device(hostname=LOOPBACK)]
            gloo: Any = dist.ProcessGroupGloo(*place, given)
        else:  # which heeds GLOO_SOCKET_IFNAME
            gloo = dist.ProcessGroupGloo(*place, timeout=options.timeout)
        gloo._set_sequence_number_for_group()
        self._gloo._register_backend(torch.device("cpu"), group.BackendType.GLOO, gloo)


def _traced(verb: str, operation: str) -> Callable[..., TracedWork]:
    def call(self: GlooGroup, *args: Any, **more: Any) -> TracedWork:
        self._link.on_call(operation)
        # The reducer of DistributedDataParallel calls from C++, so that the caller is the engine of the backward pass.
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
