"""The process of a rank: it runs the script, unmodified, as torchrun would start it.

What only the simulator needs is imported where it is used: it loads large parts of torch.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import runpy
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from simcluster.process.intra_op import use_one_thread
from simcluster.scripts.arena import SharedArena
from simcluster.scripts.messages import RankStart, ScriptEnded
from simcluster.scripts.rank.cluster_clock import install_clock
from simcluster.scripts.rank.distributed import install_groups, torchrun_variables
from simcluster.scripts.rank.gloo_group import GlooGroups
from simcluster.scripts.rank.loader_time import install_loader
from simcluster.scripts.rank.node_link import NodeLink, end_with_node, script_line
from simcluster.scripts.rank.script_files import ScriptFiles, install_files
from simcluster.scripts.rank.spawned_ranks import SpawnedRanks, install_spawn
from simcluster.scripts.rank.step_count import StepCount
from simcluster.scripts.rank.work_meter import FREE, MEASURED, Meter, meter_for

if TYPE_CHECKING:
    from simcluster.scripts.rank.shape_mode import ShapeMode

Mode: TypeAlias = AbstractContextManager[Any]

UNSTATED_BYTES = 80 << 30  # what `torch.cuda` speaks of where the topology states no memory


def run_rank(
    start: RankStart, memory: Path, asking: Connection, answers: Connection, lifeline: Connection, places: Connection
) -> None:
    """Run the script; never return."""
    gc.freeze()  # the collector leaves what came with the fork alone, so that its memory stays shared
    if sys.platform != "win32":
        os.setsid()  # a Ctrl-C is the node program's, and processes of the script end with it
    threading.Thread(target=_hear_node, args=(lifeline, places, memory), daemon=True).start()
    for number in (1, 2):
        os.dup2(start.output.fileno(), number)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    multiprocessing.set_start_method(None, force=True)  # the script's processes start as they do without us
    use_one_thread()
    meter = meter_for(start.cost if start.run.is_simulated else FREE)
    shapes = None if start.run.computes else _without_values()
    arena = SharedArena(memory, None if shapes is None else shapes.has_values)
    link = NodeLink(asking, answers, arena, meter)
    os.environ.clear()  # it is that of the process that this one was forked from
    os.environ |= start.environment
    os.environ |= torchrun_variables(start.rank, start.size, start.place, start.restarts)
    gloo = None if start.meeting is None else GlooGroups(link, start.meeting)
    install_groups(link, start.rank, start.size, gloo)
    steps = StepCount(link, start.run.steps)
    ranks = install_spawn(start.rank, start.size)
    modes: list[Mode] = []
    if start.run.is_simulated:
        modes = [_on_cluster(start, link, meter)]
        modes += [mode for mode in (shapes, meter) if isinstance(mode, TorchDispatchMode)]
    _seed(start.seed)
    ended = _run(start, modes, ranks)
    with suppress(OSError, ValueError):  # closed by the script
        sys.stdout.flush()
        sys.stderr.flush()
    if gloo is not None:
        gloo.trace.flush()
    if link.is_ranks:
        if not ended.code:
            steps.end()
        link.tell(ended)
    os._exit(ended.code)


def _without_values() -> ShapeMode:
    """Let tensors have no values from now on; return the mode to run the script in."""
    from simcluster.scripts.rank.shape_mode import ShapeMode, install_shapes

    shapes = ShapeMode()
    install_shapes(shapes)
    return shapes


def _on_cluster(start: RankStart, link: NodeLink, meter: Meter) -> Mode:
    """Give this process the clock and the devices of the simulated cluster; return the mode to run the script in."""
    from simcluster.scripts.rank.cuda_stand_in import CudaOnCpu, StandInDevice, install_cuda

    install_clock(link)
    install_loader(link, is_measured=start.loader == MEASURED)
    if not torch.cuda.is_available():
        name, memory_bytes = start.run.devices[start.rank]
        seen = start.size if start.place.local_size == 1 else start.place.local_size  # all, if every machine has one
        install_cuda(StandInDevice(name, memory_bytes or UNSTATED_BYTES), seen, start.place.local_rank, meter.memory)
    meter.memory.follow_resizes()
    return CudaOnCpu()


def _run(start: RankStart, modes: Sequence[Mode], ranks: SpawnedRanks) -> ScriptEnded:
    sys.argv = [start.script, *start.args]
    try:
        os.chdir(start.folder)
        if start.files is not None and start.files.parent.is_dir():  # this machine may not have it
            install_files(ScriptFiles(start.files, start.folder))
        with ExitStack() as entered:
            for mode in modes:
                entered.enter_context(mode)
            _execute(start)
            ranks.check()
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
        if isinstance(leave.code, str):
            print(leave.code, file=sys.stderr)
        return ScriptEnded(code=code)
    except BaseException as error:
        error = error.with_traceback(_of_script(error))
        traceback.print_exception(error)
        return ScriptEnded(code=1, error="".join(traceback.format_exception(error)))
    return ScriptEnded()


def _execute(start: RankStart) -> None:
    sys.path.insert(0, str(start.root))
    if start.module:
        runpy.run_module(start.module, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(start.script, run_name="__main__")


def _of_script(error: BaseException) -> TracebackType | None:
    """Return the traceback of *error* from the script's own first line on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith((__file__, runpy.__file__, "<frozen")):
        trace = trace.tb_next
    return trace or error.__traceback__


def _hear_node(lifeline: Connection, places: Connection, memory: Path) -> None:
    """Tell the node program the script's line whenever it asks; end with it, even if it was killed."""
    script = threading.main_thread().ident or 0
    with suppress(OSError, EOFError):
        while True:
            lifeline.recv_bytes()
            places.send_bytes(script_line(sys._current_frames().get(script)).encode())
    end_with_node(memory)


def _seed(seed: int | None) -> None:
    """Give random, numpy and torch that *seed*, or a new one, as a new process has, and not that of a fork."""
    random.seed(seed)
    np.random.seed(None if seed is None else seed % 2**32)
    torch.seed() if seed is None else torch.manual_seed(seed)
