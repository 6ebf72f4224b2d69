"""The process group of a rank for torch.distributed, which asks the node program to make each call.

torch 2.13 accepts a Python ProcessGroup as a backend. Later releases have `dist.BackendBase`
instead; supporting it will change only this file.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from simcluster.payload import DTYPE_NAMES, DTYPES
from simcluster.scripts.arena import as_numbers
from simcluster.scripts.messages import CallIssued, GroupMade
from simcluster.scripts.rank.call_work import CallWork, JoinedWork
from simcluster.scripts.rank.node_link import NodeLink, refuse

NAME = "simcluster"
REDUCTIONS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")

BARRIER_LABEL = -1  # the tag of a monitored barrier's messages; scripts' tags are never negative

_call_numbers = itertools.count()
_group_numbers = itertools.count()

_Group: Any = dist.ProcessGroup  # Any, because torch 2.13 declares fewer arguments than it takes


class ScriptGroup(_Group):  # type: ignore[misc]
    """The process group of world *ranks*. This process has rank *rank* in the group."""

    supports_coalescing = True
    supports_splitting = False

    def __init__(self, link: NodeLink, rank: int, ranks: Sequence[int], asked_backend: str) -> None:
        super().__init__(rank, len(ranks))  # type: ignore[call-arg]
        self.asked_backend = asked_backend
        self._link = link
        self._ranks = tuple(ranks)
        self._number = next(_group_numbers)
        self._coalesced: list[CallWork] | None = None
        link.tell(GroupMade(number=self._number, ranks=self._ranks))

    def allreduce(self, tensors: Any, opts: Any = None, *_: Any) -> CallWork:
        return self._reduce("all_reduce", _listed(tensors), None, opts)

    allreduce_coalesced = allreduce

    def broadcast(self, tensors: Any, opts: Any = 0, *_: Any) -> CallWork:
        return self._call("broadcast", _listed(tensors), None, root=_root_of(opts))

    def reduce(self, tensors: Any, opts: Any = 0, *_: Any) -> CallWork:
        return self._reduce("reduce", _listed(tensors), None, opts, _root_of(opts))

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> CallWork:
        if isinstance(inputs, Tensor):
            outputs, inputs = [outputs], [inputs]
        return self._call("all_gather", inputs, list(itertools.chain(*outputs)))

    def allgather_coalesced(self, outputs: Any, inputs: list[Tensor], opts: Any = None) -> JoinedWork:
        # Outputs are by rank, then by tensor.
        by_tensor = [[rank_outputs[place] for rank_outputs in outputs] for place in range(len(inputs))]
        return JoinedWork([self.allgather([out], [one]) for out, one in zip(by_tensor, inputs, strict=True)])

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> CallWork:
        return self._call("all_gather", [input], _parts(output, self.size()))

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> JoinedWork:
        return JoinedWork([self.all_gather_single(out, one) for out, one in zip(outputs, inputs, strict=True)])

    def gather(self, outputs: Any, inputs: Any, opts: Any = 0, *_: Any) -> CallWork:
        if isinstance(inputs, Tensor):
            outputs, inputs = [outputs], [inputs]
        root = _root_of(opts)
        return self._call("gather", inputs, outputs[0] if self.rank() == root else [], root=root)

    def scatter(self, outputs: Any, inputs: Any, opts: Any = 0, *_: Any) -> CallWork:
        if isinstance(outputs, Tensor):
            outputs, inputs = [outputs], [inputs]
        root = _root_of(opts)
        return self._call("scatter", inputs[0] if self.rank() == root else [], outputs, root=root)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None, *_: Any) -> CallWork:
        if isinstance(outputs, Tensor):
            outputs, inputs = [outputs], [inputs]
        return self._reduce("reduce_scatter", inputs[0], outputs, opts)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> CallWork:
        return self._reduce("reduce_scatter", _parts(input, self.size()), [output], opts)

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> JoinedWork:
        pairs = zip(outputs, inputs, strict=True)
        return JoinedWork([self.reduce_scatter_single(out, one, opts) for out, one in pairs])

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> CallWork:
        return self._call("all_to_all", inputs, outputs)

    def all_to_all_single(
        self, output: Tensor, input: Tensor, output_sizes: Sequence[int], input_sizes: Sequence[int], opts: Any = None
    ) -> CallWork:
        def split(tensor: Tensor, sizes: Sequence[int]) -> list[Tensor]:
            return list(torch.split(tensor, list(sizes)) if sizes else tensor.chunk(self.size()))

        return self._call("all_to_all", split(input, input_sizes), split(output, output_sizes))

    def barrier(self, opts: Any = None, *_: Any) -> CallWork:
        return self._call("barrier", [], [])

    def monitored_barrier(self, timeout: datetime.timedelta, wait_all_ranks: bool = False) -> None:
        """Wait until all ranks have called this function: rank 0 receives a message from every
        other rank, and then answers them all.

        Raise RuntimeError on rank 0 with the ranks that are late, and on a rank that gets no answer
        in time.
        """
        flag = torch.zeros(1)
        if self.rank():
            self.send([flag], 0, BARRIER_LABEL).wait(timeout)
            self.recv([flag], 0, BARRIER_LABEL).wait(timeout)
            return
        late = []
        for rank in range(1, self.size()):
            try:
                self.recv([flag], rank, BARRIER_LABEL).wait(timeout)
            except RuntimeError as error:
                late.append(f"rank {rank} failed to pass: {error}")
                if not wait_all_ranks:
                    break
        if late:
            raise RuntimeError("; ".join(late))
        for rank in range(1, self.size()):
            self.send([flag], rank, BARRIER_LABEL).wait(timeout)

    # Older names of the methods, which the C++ code of torch 2.13 still calls.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    def send(self, tensors: Any, dst: int, tag: int = 0) -> CallWork:
        return self._call("send", _listed(tensors), [], peer=self._ranks[dst], label=tag)

    def recv(self, tensors: Any, src: int, tag: int = 0) -> CallWork:
        return self._call("recv", [], _listed(tensors), peer=self._ranks[src], label=tag)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> CallWork:
        return self._call("recv", [], _listed(tensors), label=tag)

    def getBackendName(self) -> str:
        return NAME

    def _get_backend(self, device: torch.device) -> ScriptGroup:
        return self

    def _start_coalescing(self, device: torch.device) -> None:
        self._coalesced = []

    def _end_coalescing(self, device: torch.device) -> JoinedWork:
        works, self._coalesced = self._coalesced or [], None
        return JoinedWork(works)

    def shutdown(self) -> None:
        """Do nothing: the group ends with its processes."""

    abort = shutdown

    @property
    def pg_name(self) -> str:
        return str(dist.distributed_c10d._world.pg_names[self])

    group_name = pg_name

    def _reduce(
        self, operation: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor] | None, opts: Any, root: int = 0
    ) -> CallWork:
        reduction, factor = _reduction_of(opts)
        for tensor in inputs:
            check_reducible(tensor, reduction)
        return self._call(operation, inputs, outputs, factor=factor, reduction=reduction, root=root)

    def _call(
        self, operation: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor] | None, factor: Any = None, **how: Any
    ) -> CallWork:
        """Issue the call *operation*, and return it as a torch Work.

        If *outputs* is None, the results overwrite *inputs*. If *factor* is given, the inputs are
        first multiplied by it.
        """
        self._link.on_call(operation)
        for tensor in (*inputs, *(outputs or ())):
            check_dtype(tensor)
        arena = self._link.arena
        with torch.no_grad(), self._link.unmetered():
            scaled = inputs if factor is None else [tensor * factor for tensor in inputs]
            given = [arena.put(as_numbers(tensor)) for tensor in scaled]
            taken = given if outputs is None else [arena.place(as_numbers(tensor)) for tensor in outputs]
        number = next(_call_numbers)
        self._link.tell(
            CallIssued(number=number, group=self._number, operation=operation, inputs=given, outputs=taken, **how)
        )
        places = given if outputs is None else [*given, *taken]
        results = list(zip(taken, inputs if outputs is None else outputs, strict=True))
        work = CallWork(self._link, number, places, results)
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work


def check_dtype(tensor: Tensor) -> None:
    """Raise NotImplementedError if no message can carry *tensor*."""
    if tensor.layout is not torch.strided:
        refuse(f"a {str(tensor.layout).rpartition('.')[2]} tensor in a call", "expected a dense one")
    if not tensor.is_complex() and tensor.dtype not in DTYPE_NAMES:
        refuse(f"a tensor of {tensor.dtype} in a call", f"expected one of {', '.join(DTYPES)}, complex64, complex128")


def check_reducible(tensor: Tensor, reduction: str) -> None:
    """Raise NotImplementedError if *reduction* is not defined for the dtype of *tensor*."""
    is_bitwise = reduction in ("band", "bor", "bxor")
    if is_bitwise and (tensor.is_floating_point() or tensor.is_complex()):
        refuse(f"ReduceOp.{reduction.upper()} of {tensor.dtype}", "expected integers or bool")
    if tensor.is_complex() and reduction not in ("sum", "avg"):
        refuse(f"ReduceOp.{reduction.upper()} of {tensor.dtype}", "expected SUM or AVG for complex numbers")


def _listed(tensors: Any) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _parts(tensor: Tensor, size: int) -> list[Tensor]:
    """Return a view of *tensor* for each of *size* ranks.

    A contiguous tensor is split in the order of its memory, and any other tensor along its first
    dimension.
    """
    return list(tensor.reshape(size, -1).unbind()) if tensor.is_contiguous() else list(tensor.chunk(size))


def _root_of(options: Any) -> int:
    return options if isinstance(options, int) else int(options.rootRank)


def _reduction_of(options: Any) -> tuple[str, Any]:
    """Return (name of the reduction in *options*, factor for the tensor of each rank, or None)."""
    operation: Any = getattr(options, "reduceOp", dist.ReduceOp.SUM if options is None else options)
    name = str(getattr(operation, "op", operation)).rpartition(".")[2].lower()
    if name == "premul_sum":
        return "sum", operation.__getstate__()[1]
    if name not in REDUCTIONS:
        refuse(f"ReduceOp.{name.upper()}", f"expected one of {', '.join(REDUCTIONS)}, premul_sum")
    return name, None
