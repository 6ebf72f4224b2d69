"""The block `script` of an experiment, which stands for an algorithm and a workload."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simcluster.documents.limits import MOST_STEPS
from simcluster.documents.reading import DocumentReading
from simcluster.documents.script_code import module_file, wrong_script
from simcluster.experiment.read.experiment import NAMED
from simcluster.experiment.read.keys import ExperimentBlock
from simcluster.scripts.messages import ScriptRun
from simcluster.scripts.rank.work_meter import MEASURED
from simcluster.scripts.run_script import NAME as SCRIPT
from simcluster.spelling import nearest
from simcluster.topology import Topology
from simcluster.topology.read.rank_places import rank_places

KEY = "script"


OF_REPLICAS = ("checkpoint", "observe", "evaluate_every", "evaluate_consensus")
KNOWN = ("file", "module", "args", "cost", "loader", "nproc_per_node", "pass_local_rank", "schedules", "seed")


def expand_script(reading: DocumentReading) -> dict[str, Any]:
    """Replace the block `script` in the document by the algorithm and the workload for it.

    Return the overrides of the topology that the block requires.
    """
    data = reading.document.data
    given = data.pop(KEY)
    block = dict(given) if isinstance(given, Mapping) else {"file": given}
    before = len(reading.problems)
    data[KEY] = block  # so that its problems can be located
    if isinstance(block.get("args"), (list, tuple)):
        block["args"] = [str(arg) if isinstance(arg, (int, float)) else arg for arg in block["args"]]
    for key in block.keys() - set(KNOWN):
        reading.bad((KEY, key), nearest(str(key), KNOWN), "unknown key", at_key=True)
    for other in NAMED:
        if (named := data.get(other)) is not None:
            found = (named.get("name") or named.get("path")) if isinstance(named, Mapping) else named
            reading.bad((other,), "no such key with `script`, which has its own model and data", str(found))
    for other in OF_REPLICAS:
        if data.get(other):
            reading.bad((other,), "no such key with `script`, which evaluates and saves its model itself")
    for key, its_own in (("epochs", "epochs"), ("patience", "evaluations")):
        if isinstance(data.get("stop"), Mapping) and key in data["stop"]:
            reading.bad(("stop", key), f"steps or time with `script`, whose {its_own} are its own")
    if block.get("cost") == MEASURED and data.get("numerics") == "none":
        expected = "counted or free: with numerics: none nothing is computed whose processor time could be measured"
        reading.bad((KEY, "cost"), expected, MEASURED)
    file = _file(reading, block)
    if file is None or len(reading.problems) > before:
        return {}
    del data[KEY]
    processes = block.pop("nproc_per_node", None)
    data["algorithm"] = {"name": SCRIPT, **block, "file": str(file.resolve())}
    data["workload"] = {"name": SCRIPT}
    data.setdefault("name", block.get("module") or file.stem)
    return {} if processes is None else {"launch.nproc_per_node": processes}


def ends_by_itself(reading: DocumentReading) -> None:
    """Add a number of steps that is never reached if a script has no stop rule, or only a time."""
    if reading.document.data.get(KEY) is None:
        return
    stop = reading.document.data.setdefault("stop", {})
    if isinstance(stop, dict) and not {"steps", "epochs"} & stop.keys():
        stop["steps"] = MOST_STEPS


def _file(reading: DocumentReading, block: Mapping[str, Any]) -> Path | None:
    """Return the file that *block* names.

    If it is not a Python program, report that and return None.
    """
    given, module = block.get("file"), block.get("module")
    folder = Path(reading.folder_of((KEY,)))
    if isinstance(given, str) == isinstance(module, str):
        reading.bad((KEY,), "either file, the path of a Python file, or module, the name of one")
        return None
    if isinstance(module, str):
        found = module_file(module, folder)
        if found is None:
            reading.bad((KEY, "module"), f"a Python module that is found in {folder}, or installed", module)
        return found
    file = folder / str(given)
    if wrong := wrong_script(file):
        reading.bad((KEY, "file") if KEY in reading.document.data else (KEY,), "a Python file", f"{file}: {wrong}")
        return None
    return file


def is_script(document: Mapping[str, Any]) -> bool:
    """Return whether a resolved *document* runs a script."""
    return bool(document["algorithm"].get("name") == SCRIPT)


def script_run(top: ExperimentBlock, cluster: Topology | None) -> ScriptRun:
    """Return how the experiment would run a script on *cluster*.

    Without a number of steps, the script runs until it ends by itself.
    """
    steps = top.stop.steps if top.stop.steps not in (None, MOST_STEPS) else 0
    places = rank_places(cluster) if cluster is not None else ()
    is_simulated, is_gloo = top.backend == "sim", top.backend == "torch"
    devices = [] if cluster is None else [cluster.nodes[name].device for name in cluster.workers]
    named = tuple(("", None) if device is None else (device.name, device.memory_bytes) for device in devices)
    return ScriptRun(is_simulated, is_gloo, steps or 0, top.numerics == "real", places, named)
