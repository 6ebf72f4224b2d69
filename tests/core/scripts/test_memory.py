"""The memory that a script's tensors take: closed forms, what torch.cuda answers, and devices that are too small."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.scripts.running import pair, printed, run_script

SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.cuda.reset_peak_memory_stats()
weight = torch.nn.Parameter(torch.ones(1000, 1000, device="cuda"))
print("weight", torch.cuda.memory_allocated())
loss = (weight * 2).sum()
print("product freed", torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated())
loss.backward()
del loss
print("gradient", torch.cuda.memory_allocated())
optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
optimizer.step()
print("momentum", torch.cuda.memory_allocated())
torch.cuda.reset_peak_memory_stats()
work = dist.all_reduce(weight.grad, async_op=True)
print("in flight", torch.accelerator.memory_allocated())
work.wait()
print("arrived", torch.cuda.memory_reserved(), torch.accelerator.max_memory_allocated())
weight.grad.untyped_storage().resize_(0)
print("resized", torch.cuda.memory_allocated())
free, total = torch.cuda.mem_get_info()
print("of", total, total - free, torch.cuda.get_device_properties(0).name)
"""


@pytest.mark.parametrize("numerics", ["real", "none"])
def test_memory_is_that_of_the_tensors_alive_and_a_peak_too_large_is_told(numerics: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    cluster = pair()
    cluster["nodes"]["a"]["memory"] = "10 MB"
    cluster["nodes"]["b"]["memory"] = "24 MB"
    run = run_script(tmp_path / "script.py", tmp_path / "run", cluster, numerics=numerics)
    found = {line.rpartition(" ")[0]: line for line in printed(tmp_path / "run")}
    lines = [line for line in found.values() if "UserWarning" not in line]
    one = 4 * 1000 * 1000  # bytes of a tensor of 1000 x 1000 numbers
    scalar = 4
    assert lines == [
        f"weight {one}",
        f"product freed {one + scalar} {2 * one + scalar}",  # the product lives until it is summed
        f"gradient {2 * one}",
        f"momentum {3 * one}",
        f"in flight {4 * one}",  # with the process group's copy of the gradient
        f"arrived {3 * one} {4 * one}",
        f"resized {2 * one}",
        f"of 10000000 {2 * one} custom",
    ]
    nodes = run.summary["nodes"]
    peak_bytes = nodes["a"]["predicted_peak_bytes"]
    # The backward pass may hold a gradient of the sum and of the product at once, at most.
    assert 4 * one <= peak_bytes <= 4 * one + 2 * scalar
    assert nodes["b"]["predicted_peak_bytes"] == peak_bytes
    (told,) = run.summary["warnings"]
    assert told["nodes"] == ["a"]
    assert told["text"] == (
        "the script does not fit on a: its tensors take 16 MB, 6 MB more than the memory there, 10 MB"
    )


def test_check_memory_false_says_nothing_of_it(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import torch\nx = torch.zeros(10_000_000)\n")
    cluster = pair()
    for node in cluster["nodes"].values():
        node["memory"] = "1 MB"
    run = run_script(tmp_path / "script.py", tmp_path / "run", cluster, check_memory=False)
    assert "warnings" not in run.summary
    assert run.summary["nodes"]["a"]["predicted_peak_bytes"] == 40_000_000
