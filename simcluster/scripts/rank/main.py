"""The main program of a rank's process, which runs the unmodified script as torchrun would.

Modules that only the simulator needs are imported where they are used, since they load large parts
of torch.
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
from typing import TYPE_CHECKING, Any

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

Mode = AbstractContextManager[Any]

UNSTATED_BYTES = 80 << 30  # the memory that `torch.cuda` reports if the topology states none


def run_rank(
    start: RankStart, memory: Path, asking: Connection, answers: Connection, lifeline: Connection, places: Connection
) -> None:
    """Run the script that *start* describes.

    This function never returns: the process exits with the script's exit code.
    """
    # Hide the objects inherited from the fork from the garbage collector, so that their memory
    # stays shared.
    gc.freeze()
    if sys.platform != "win32":
        # Start a new process group: a Ctrl-C goes to the node program, which ends all processes of
        # the script.
        os.setsid()
    threading.Thread(target=_hear_node, args=(lifeline, places, memory), daemon=True).start()
    for number in (1, 2):
        os.dup2(start.output.fileno(), number)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # Processes that the script starts use Python's default method, as they would without this
    # library.
    multiprocessing.set_start_method(None, force=True)
    use_one_thread()
    meter = meter_for(start.cost if start.run.is_simulated else FREE)
    shapes = None if start.run.computes else _without_values()
    arena = SharedArena(memory, None if shapes is None else shapes.has_values)
    link = NodeLink(asking, answers, arena, meter)
    os.environ.clear()  # the fork inherited another process's variables
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
    with suppress(OSError, ValueError):  # the script may have closed its output
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
    """From now on, make tensors without values. Return the mode to run the script in."""
    from simcluster.scripts.rank.shape_mode import ShapeMode, install_shapes

    shapes = ShapeMode()
    install_shapes(shapes)
    return shapes


def _on_cluster(start: RankStart, link: NodeLink, meter: Meter) -> Mode:
    """Install the clock and the devices of the simulated cluster. Return the mode to run the script
    in.
    """
    from simcluster.scripts.rank.cuda_stand_in import CudaOnCpu, StandInDevice, install_cuda

    install_clock(link)
    install_loader(link, is_measured=start.loader == MEASURED)
    if not torch.cuda.is_available():
        name, memory_bytes = start.run.devices[start.rank]
        # If every machine has one rank, the script sees the devices of all machines.
        seen = start.size if start.place.local_size == 1 else start.place.local_size
        install_cuda(StandInDevice(name, memory_bytes or UNSTATED_BYTES), seen, start.place.local_rank, meter.memory)
    meter.memory.follow_resizes()
    return CudaOnCpu()


def _run(start: RankStart, modes: Sequence[Mode], ranks: SpawnedRanks) -> ScriptEnded:
    sys.argv = [start.script, *start.args]
    sys.path.insert(0, str(start.root))
    try:
        os.chdir(start.folder)
        # The run's folder may be on another machine.
        if start.files is not None and start.files.parent.is_dir():
            install_files(ScriptFiles(start.files, start.folder))
        with ExitStack() as entered:
            for mode in modes:
                entered.enter_context(mode)
            if start.module:
                runpy.run_module(start.module, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(start.script, run_name="__main__")
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


def _of_script(error: BaseException) -> TracebackType | None:
    """Return the traceback of *error* from the script's first frame on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith((__file__, runpy.__file__, "<frozen")):
        trace = trace.tb_next
    return trace or error.__traceback__


def _hear_node(lifeline: Connection, places: Connection, memory: Path) -> None:
    """Send the script's current line each time the node program asks for it.

    When the node program ends, end this process.
    """
    script = threading.main_thread().ident or 0
    with suppress(OSError, EOFError):
        while True:
            lifeline.recv_bytes()
            places.send_bytes(script_line(sys._current_frames().get(script)).encode())
    end_with_node(memory)


def _seed(seed: int | None) -> None:
    """Seed the generators of random, numpy and torch with *seed*.

    If *seed* is None, seed them at random, since this process is a fork and inherited their states.
    """
    random.seed(seed)
    np.random.seed(None if seed is None else seed % 2**32)
    torch.seed() if seed is None else torch.manual_seed(seed)
