"""The shipped scripts print the losses of plain torch.distributed, and real nodes have the simulator's bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.scripts.every_shipped import ARGUMENTS, SMALL
from tests.core.scripts.running import SHIPPED, losses, pair, printed, run_script, under_gloo
from tests.core.scripts.test_verbs import VERBS
from tests.support.levels import sample_of

NODES = "abcd"
OTHER_ORDER = 2e-4
"""Gloo adds the gradients of fully sharded training in another order than the cluster's ring."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "args", "steps", "rel"),
    sample_of(
        [
            ("ddp_mlp", (), 20, 1e-5),
            ("accelerate_mlp", ("--cpu",), 20, 1e-5),
            ("fsdp_meta", ("--steps", "6"), 6, OTHER_ORDER),
            ("collectives", (), 5, 1e-5),
            ("gpt_7b", ("--steps", "4", *SMALL, "--hidden", "64", "--words", "50"), 4, OTHER_ORDER),
        ],
        2,
    ),
)
def test_simulator_and_gloo_print_the_same_losses(
    script: str, args: tuple[str, ...], steps: int, rel: float, tmp_path: Path
) -> None:
    run_script(SHIPPED / f"{script}.py", tmp_path / "run", pair(nodes=NODES), *args)
    found = losses(printed(tmp_path / "run"))
    assert len(found) == steps
    assert found == pytest.approx(losses(under_gloo(SHIPPED / f"{script}.py", tmp_path, 4, *args)[0]), rel=rel)


@pytest.mark.exhaustive
def test_a_script_that_starts_its_own_ranks_runs_on_the_clusters(tmp_path: Path) -> None:
    run_script(SHIPPED / "ddp_spawn.py", tmp_path / "run", pair(nodes=NODES))
    found = losses(printed(tmp_path / "run"))
    assert len(found) == 20
    assert found == pytest.approx(losses(under_gloo(SHIPPED / "ddp_spawn.py", tmp_path, 1, "4")[0]), rel=1e-5)


@pytest.mark.exhaustive
def test_a_script_for_cuda_runs_without_one_as_the_same_script_for_the_cpu(tmp_path: Path) -> None:
    args = ("--steps", "6", "--layers", "2", "--width", "64", "--dtype", "float32")
    run_script(SHIPPED / "gpt_cuda.py", tmp_path / "run", pair(nodes=NODES), *args)
    found = losses(printed(tmp_path / "run"))
    assert len(found) == 6
    plain = under_gloo(SHIPPED / "gpt_cuda.py", tmp_path, 4, *args, "--device", "cpu")[0]
    assert found == pytest.approx(losses(plain), rel=1e-5)


@pytest.mark.slow
def test_real_nodes_have_right_verbs_and_the_simulators_bits_of_every_shipped_script(tmp_path: Path) -> None:
    assert {path.stem for path in SHIPPED.glob("*.py")} == set(ARGUMENTS)
    script, nodes = Path(__file__).with_name("every_shipped.py"), "abc"
    found = {}
    for backend in ("sim", "sockets"):
        run_script(script, tmp_path / backend, pair(nodes=nodes), str(len(nodes)), backend=backend)
        lines = {node: printed(tmp_path / backend, node) for node in nodes}
        found[backend] = [(node, line) for node in nodes for line in lines[node] if line.startswith("digest ")]
        assert [line for line in lines["a"] if line.endswith(" good")] == [f"{name} good" for name in VERBS.split()]
    assert len(found["sim"]) == len(nodes) * len(ARGUMENTS)
    assert found["sockets"] == found["sim"]
