"""Compare the memory that the ranks of a script have needed with the memory of their devices."""

from __future__ import annotations

from simcluster.experiment.read.experiment import Experiment
from simcluster.runs import words
from simcluster.runs.calls import SCRIPT
from simcluster.runs.doubts import Warned, warned
from simcluster.runs.record import RunRecord
from simcluster.units import format_size

TOO_LARGE = "does_not_fit"


def misfits_of_script(record: RunRecord, plan: Experiment) -> list[Warned]:
    """Return a warning for each group of equal nodes whose tensors exceeded their memory."""
    if plan.algorithm_name != SCRIPT or not plan.check_memory:
        return []
    alike: dict[tuple[int, str, int], list[str]] = {}
    for node in record.nodes:
        device = plan.topology.nodes[node.name].device
        peak_bytes = node.predicted_peak_bytes or 0
        if device is not None and device.usable_bytes is not None and peak_bytes > device.usable_bytes:
            alike.setdefault((device.usable_bytes, device.memory_words, peak_bytes), []).append(node.name)
    return [_misfit(names, *numbers) for numbers, names in alike.items()]


def _misfit(names: list[str], limit: int, memory: str, peak_bytes: int) -> Warned:
    where = words.some_of(names)
    text = (
        f"the script does not fit on {where}: its tensors take {format_size(peak_bytes)}, "
        f"{format_size(peak_bytes - limit)} more than the memory there, {memory}"
    )
    return warned(TOO_LARGE, text, nodes=names)
