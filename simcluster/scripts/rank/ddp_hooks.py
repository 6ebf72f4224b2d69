"""Communication hooks for DistributedDataParallel. Without a hook its reducer waits in C++, where
simcluster sees no call.

A hook issues a call for each bucket as soon as the bucket is full, so that buckets travel during
the backward pass. At the last bucket it waits for all of them. If the script registers a hook, that
hook is wrapped to wait in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._C._distributed_c10d import BuiltinCommHookType
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, fp16_compress_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from simcluster.scripts.rank.call_work import CallFuture
from simcluster.scripts.rank.replacements import around

Hook = Callable[[Any, Any], Any]


def install_hooks() -> None:
    """Make every DistributedDataParallel use a waiting hook from now on."""

    @around(DistributedDataParallel, "register_comm_hook")
    def register_hook(register: Any, self: Any, state: object, hook: Hook) -> None:
        self._has_own_hook = True
        register(self, state, waiting_hook(hook))

    @around(DistributedDataParallel, "_register_builtin_comm_hook")
    def register_builtin_hook(_: Any, self: Any, kind: Any) -> None:
        builtin = {BuiltinCommHookType.ALLREDUCE: allreduce_hook}
        self.register_comm_hook(self.process_group, builtin.get(kind, fp16_compress_hook))

    @around(DistributedDataParallel, "_pre_forward")
    def pre_forward(forward: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        if not getattr(self, "_has_own_hook", False):
            self.register_comm_hook(self.process_group, allreduce_hook)
        return forward(self, *args, **kwargs)


def waiting_hook(hook: Hook) -> Hook:
    """Return a hook that calls *hook* for each bucket, and at the last one waits for the futures of
    all.
    """
    pending: list[Future[Any]] = []

    def call(state: object, bucket: Any) -> Any:
        future = hook(state, bucket)
        pending.append(future)
        if bucket.is_last():
            for one in pending:
                if isinstance(one, CallFuture):
                    one.wait()
            pending.clear()
        return future

    # Do not copy __name__: without CUDA, torch refuses a hook by its name if it is one for
    # bfloat16.
    call.__qualname__ = getattr(hook, "__qualname__", "hook")
    call.__annotations__ = dict(getattr(hook, "__annotations__", {}))
    return call
