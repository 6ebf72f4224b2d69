"""`numerics: none` runs a script without values: the same calls, costs and times; a decision by one is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simcluster.errors import NodeFailed, UsageError
from simcluster.results import Run
from tests.core.scripts.running import SHIPPED, pair, printed, run_script
from tests.support.levels import sample_of

BEGIN = "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\nrank = dist.get_rank()\n"
SMALL = ("--steps", "2", "--layers", "2", "--width", "32", "--heads", "2", "--hidden", "48", "--words", "100")


def cluster() -> dict[str, Any]:
    """Return a pair of nodes on which operations, bytes and operators all take time."""
    found = pair()
    for node in found["nodes"].values():
        node |= {"memory_bandwidth": "3 GB/s", "operator_overhead": "7 us"}
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "args"),
    sample_of(
        [
            ("ddp_mlp", ("--steps", "3")),
            ("fsdp_meta", ("--steps", "2")),
            ("gpt_cuda", ("--steps", "2", "--layers", "2", "--width", "32", "--length", "16")),
            ("gpt_7b", (*SMALL, "--length", "16")),
        ],
    ),
)
def test_times_messages_and_memory_are_those_of_the_run_with_values(
    script: str, args: tuple[str, ...], tmp_path: Path
) -> None:
    def run(numerics: str) -> Run:
        return run_script(SHIPPED / f"{script}.py", tmp_path / numerics, cluster(), *args, numerics=numerics)

    real, none = run("real").summary, run("none").summary
    assert none["elapsed_s"] == pytest.approx(real["elapsed_s"], rel=0, abs=1e-9)
    for name, node in none["nodes"].items():
        assert node["compute_s"] == pytest.approx(real["nodes"][name]["compute_s"], rel=0, abs=1e-9)
        for same in ("bytes_sent", "messages_sent", "predicted_peak_bytes"):
            assert node[same] == real["nodes"][name][same] > 0
    lines = [line for line in printed(tmp_path / "none") if line.startswith("step ")]
    assert lines
    assert all("loss nan" in line for line in lines)


VALUES = """
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.device_mesh import init_device_mesh

tokens = torch.randperm(100, generator=torch.Generator().manual_seed(rank))
print("tokens", sorted(tokens.tolist()) == list(range(100)), tokens[tokens > 97].numel())
told = [None, None]
dist.all_gather_object(told, {"rank": rank})
print("objects", told)
count = torch.tensor([rank + 1])
dist.all_reduce(count)
print("sum", count.item())
model = torch.nn.Linear(4, 2).to("cuda").to(torch.bfloat16)
found = model(torch.ones(3, 4, dtype=torch.bfloat16))
right = torch.zeros(1, dtype=torch.int64)
right += (found.argmax(1) == tokens[:3] % 2).sum()
dist.all_reduce(right)
print("unknown", right.item(), f"{found.sum():.2f}", right)
torch.save({"model": model.state_dict(), "tokens": tokens}, f"saved{rank}.pt")
loaded = torch.load(f"saved{rank}.pt", map_location="cuda")
model.load_state_dict(loaded["model"])
print("saved", {name: tuple(one.shape) for name, one in loaded["model"].items()})
whole = distribute_tensor(torch.ones(4, 4), init_device_mesh("cpu", (2,)), [Shard(0)])
print("gathered", tuple(whole.full_tensor().shape))
"""


@pytest.mark.slow
def test_integers_have_values_and_what_comes_of_floats_has_none(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(BEGIN + VALUES)
    run = run_script(tmp_path / "script.py", tmp_path / "run", pair(), numerics="none")
    lines = printed(tmp_path / "run")
    # Two of the hundred numbers are above 97. Ranks 0 and 1 add 1 and 2.
    assert [
        line for line in lines if line.startswith(("tokens", "objects", "sum", "unknown", "saved", "gathered"))
    ] == [
        "tokens True 2",
        "objects [{'rank': 0}, {'rank': 1}]",
        "sum 3",
        "unknown unknown nan tensor(unknown, size=(1,))",
        "saved {'weight': (2, 4), 'bias': (2,)}",
        "gathered (4, 4)",
    ]
    warned = [line for line in lines if "asks for a value" in line]
    assert len(warned) == 1
    assert f"{tmp_path / 'script.py'}:" in warned[0]
    # The last call gathers the other's half of 4 x 4 numbers, through torch's functional collectives.
    assert run.summary["nodes"]["a"]["bytes_sent"] > 2 * 4 * 4


@pytest.mark.parametrize(
    "decides",
    [
        "if x.sum() > 0: pass",
        "int(x.sum())",
        "range(x.sum().long())",
        "torch.nonzero(x)",
        "x.numpy()",
        "x.max().item() < 1",
    ],
)
def test_a_decision_by_an_unknown_value_is_refused_with_its_line(decides: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(f"{BEGIN}x = torch.rand(4)\n{decides}\n")
    with pytest.raises(NodeFailed, match="numerics: none does not compute") as caught:
        run_script(tmp_path / "script.py", tmp_path / "run", pair(), numerics="none")
    assert any(f'{tmp_path / "script.py"}", line 5' in note for note in caught.value.__notes__)


def test_real_nodes_refuse_to_compute_nothing(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(BEGIN)
    with pytest.raises(UsageError, match="sockets computes on real nodes; none is for the simulator"):
        run_script(tmp_path / "script.py", tmp_path / "run", pair(), backend="sockets", numerics="none")
