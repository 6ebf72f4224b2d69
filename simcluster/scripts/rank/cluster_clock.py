"""The clocks of a simulated script, which show the cluster's time; a sleep also takes the cluster's
time.
"""

from __future__ import annotations

import datetime
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import _base
from multiprocessing import connection, queues, synchronize
from types import SimpleNamespace
from typing import Any

from simcluster.scripts.messages import TimeAsked
from simcluster.scripts.rank.node_link import NodeLink
from simcluster.scripts.rank.replacements import around

EPOCH_S = 1_767_225_600.0
"""The value of time.time() at the start of every run: midnight UTC on 2026-01-01."""

_NS = 1_000_000_000


def install_clock(link: NodeLink) -> None:
    """Replace the clocks of `time` and `datetime` in the main thread of this process.

    Other threads keep the real clocks. So do the modules that wait for other processes and threads
    of the script: on the cluster's clock, their timeouts would never expire.
    """
    real = SimpleNamespace(**vars(time))
    for module in (connection, queues, synchronize, _base):
        module.time = real  # type: ignore[attr-defined]
    owner = os.getpid()
    main = threading.main_thread()

    def is_script() -> bool:
        return os.getpid() == owner and threading.current_thread() is main

    def now_s() -> float:
        return link.ask(TimeAsked()).now_s

    def replace(name: str, cluster: Callable[[], Any]) -> None:
        around(time, name)(lambda real: cluster() if is_script() else real())

    replace("time", lambda: EPOCH_S + now_s())
    replace("time_ns", lambda: round((EPOCH_S + now_s()) * _NS))
    for name in ("perf_counter", "monotonic", "process_time", "thread_time"):
        replace(name, now_s)
        replace(f"{name}_ns", lambda: round(now_s() * _NS))

    @around(time, "sleep")
    def sleep(really: Any, duration_s: float) -> None:
        if not is_script():
            really(duration_s)
        elif duration_s < 0:
            raise ValueError("sleep length must be non-negative")
        else:
            link.ask(TimeAsked(sleep_s=float(duration_s)))

    real_date: Any = datetime.datetime

    class ClusterDatetime(real_date):
        """`datetime.datetime` with the time of the cluster's clock."""

        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return cls.fromtimestamp(EPOCH_S + now_s(), tz) if is_script() else real_date.now(tz)

        @classmethod
        def utcnow(cls) -> Any:
            return cls.now(datetime.UTC).replace(tzinfo=None)

    datetime.datetime = ClusterDatetime  # type: ignore[misc]
