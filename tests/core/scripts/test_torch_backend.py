"""The same script under gloo and in the simulator: its own bits, and one record of its calls."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import simcluster
from simcluster.compute.matrix_product import MATRIX_PRODUCT, PRODUCT_FLOPS
from simcluster.errors import NodeFailed, UsageError
from simcluster.lab.explain.run import explain_run
from simcluster.results import Run
from simcluster.runs.calls import call_totals
from simcluster.scripts import metrics_log
from tests.core.scripts.running import pair, printed, run_script, under_gloo
from tests.core.scripts.traced import STEPS

SCRIPT = Path(__file__).with_name("traced.py")


def counts(run: Run) -> dict[int, dict[str, tuple[int, int]]]:
    """Return rank -> operation -> (calls, bytes)."""
    totals = call_totals(run.calls)
    return {rank: {name: one[:2] for name, one in of_rank.items()} for rank, of_rank in totals.items()}


@pytest.mark.slow
def test_a_script_has_its_own_bits_under_gloo_and_the_simulators_calls(tmp_path: Path) -> None:
    real, simulated = (
        run_script(SCRIPT, tmp_path / backend, pair(nodes="abc"), backend=backend) for backend in ("torch", "sim")
    )
    lines = [printed(tmp_path / "torch", node) for node in "abc"]
    assert [len(of_rank) for of_rank in lines] == [STEPS] * 3
    assert lines == under_gloo(SCRIPT, tmp_path, 3)

    # Weights and biases of each layer: 32 x 64 + 64 and 64 + 1 numbers of 4 bytes, at each step.
    assert counts(real)[1]["all_reduce"][1] == STEPS * 4 * (32 * 64 + 64 + 64 + 1)
    assert counts(real)[0]["send"] == counts(real)[0]["recv"] == (STEPS, STEPS * 200)
    assert "broadcast 0-2" in {span.tag for rank, span in real.calls if rank == 2}
    assert counts(real) == counts(simulated)

    # Rank 1 sleeps for 0.2 s at each step, and a rank waits for it in C++, in the reducer of DistributedDataParallel.
    assert call_totals(simulated.calls)[0]["all_reduce"].waited_s >= STEPS * 0.2
    waited = call_totals(real.calls)[0]["all_reduce"].waited_s
    assert 0.0 < waited < real.summary["elapsed_s"]
    computed = [span for rank, span in real.spans if rank == 0 and span.kind == "compute"]
    assert sum(span.end_s - span.start_s for span in computed) < real.summary["elapsed_s"] - waited

    (compared,) = simcluster.compare(simulated, real).pairs
    assert compared.metrics.in_both == 3 * STEPS  # each rank's losses
    assert compared.step_s is not None
    assert min(compared.step_s) > 0.0
    words = simcluster.compare(simulated, real).describe()
    assert "gloo made the calls of b" in words
    assert re.search(r"^a all_reduce +(\d+) +\1 +", words, re.MULTILINE)
    # On a busy machine, the rank that is ready first waits longest, for those that still load torch.
    sentences = explain_run(tmp_path / "torch").sentences()
    assert any(re.match(r"[abc] waited longest for its calls: all_gather: 1 call, ", line) for line in sentences)


@pytest.mark.slow
def test_a_rank_that_fails_before_it_meets_the_others_ends_them(tmp_path: Path) -> None:
    text = "import os\nimport torch.distributed as dist\nif os.environ['RANK'] == '1':\n    raise KeyError('no')\n"
    (tmp_path / "script.py").write_text(f"{text}dist.init_process_group('gloo')\n")
    with pytest.raises(NodeFailed) as caught:
        run_script(tmp_path / "script.py", tmp_path / "run", pair(), backend="torch")
    assert str(caught.value) == "rank 1 (b) failed: KeyError: 'no'"


def test_a_call_took_from_its_issue_to_its_end_and_was_waited_for_from_the_wait_on(tmp_path: Path) -> None:
    text = (
        "import time, torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "work = dist.all_reduce(torch.ones(1000), async_op=True)\ntime.sleep(0.01)\nwork.wait()\n"
    )
    (tmp_path / "script.py").write_text(text)
    run = run_script(tmp_path / "script.py", tmp_path / "run", pair(bandwidth="1 Mbps"))
    # A ring of two with 4000 bytes: two rounds of half of them, 2 x 2000 x 8 bits at 1 Mbps.
    took_s = 2 * 2000 * 8 / 1e6
    for of_rank in call_totals(run.calls).values():
        (total,) = of_rank.values()
        assert total == pytest.approx((1, 4000, took_s, took_s - 0.01), rel=0, abs=1e-9)


def test_a_target_is_what_the_script_logs_and_another_is_refused(tmp_path: Path) -> None:
    text = (
        "import time, simcluster, torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "for step in range(1, 5):\n    time.sleep(0.5)\n    simcluster.log(step=step, val_loss=8 / step)\n"
    )
    (tmp_path / "script.py").write_text(text)
    asked = {"script": str(tmp_path / "script.py"), "topology": pair(nodes="a")}
    how = {"out": tmp_path / "sweep", "jobs": 1, "report": False}
    done = simcluster.sweep(asked, target={"val_loss": 3.0}, **how)
    assert list(done.table["time_to_target_s"]) == [1.5]  # 8/3 at the third of steps of 0.5 s
    with pytest.raises(UsageError, match=r"logs with simcluster.log\(step=..., f1=...\), and it logged val_loss"):
        simcluster.sweep(asked, target={"f1": 0.5}, **how)


def test_log_does_nothing_elsewhere_and_takes_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    simcluster.log(step=1, loss="text")
    taken: list[object] = []
    monkeypatch.setattr(metrics_log, "_takers", [lambda step, metrics: taken.append((step, metrics))])
    simcluster.log(step=2, loss=0.5)
    assert taken == [(2, {"loss": 0.5})]
    with pytest.raises(TypeError, match=r"log\(loss=...\) is str text; expected a number"):
        simcluster.log(step=3, loss="text")


def test_with_gloos_schedules_a_reduce_scatter_takes_as_long_as_an_all_reduce(tmp_path: Path) -> None:
    text = (
        "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "part = torch.empty(2)\ndist.reduce_scatter_tensor(part, torch.arange(4.0) * (1 + dist.get_rank()))\n"
        "print(part.tolist())\n"
    )
    (tmp_path / "script.py").write_text(text)
    took_s = {}
    for schedules in ("own", "gloo"):
        block = {"schedules": schedules, "cost": "free"}
        run = run_script(tmp_path / "script.py", tmp_path / schedules, pair(bandwidth="1 kbps"), block=block)
        took_s[schedules] = call_totals(run.calls)[0]["reduce_scatter"].seconds
        # 0 1 2 3, and twice that: the first and the last half of the sums.
        assert [printed(tmp_path / schedules, node)[-1] for node in "ab"] == ["[0.0, 3.0]", "[6.0, 9.0]"]
    # Half of 16 bytes once at 1 kbps, and in the second round of an all-reduce once more.
    assert took_s == pytest.approx({"own": 8 * 8 / 1e3, "gloo": 2 * 8 * 8 / 1e3}, rel=0, abs=1e-9)


def test_with_gloos_schedules_an_all_gather_takes_the_second_of_two_ranks_half_as_long_again(tmp_path: Path) -> None:
    text = (
        "import time, torch, torch.distributed as dist\ndist.init_process_group('gloo')\nrank = dist.get_rank()\n"
        "time.sleep(rank)\nwhole = torch.empty(4)\ndist.all_gather_into_tensor(whole, torch.arange(2.0) + 2 * rank)\n"
        "print(whole.tolist())\n"
    )
    (tmp_path / "script.py").write_text(text)
    block = {"schedules": "gloo", "cost": "free"}
    run = run_script(tmp_path / "script.py", tmp_path / "run", pair(bandwidth="1 kbps"), block=block)
    assert [printed(tmp_path / "run", node)[-1] for node in "ab"] == ["[0.0, 1.0, 2.0, 3.0]"] * 2
    # A part is 4 bytes, 32 ms. Rank 1 sends its two from 1 s on, and each brings that it is ready for one of rank 0's:
    # those are sent from 32 and 64 ms later on. Rank 0 has everything then, and hands its second part to the kernel.
    took_s = [call_totals(run.calls)[rank]["all_gather"].seconds for rank in (0, 1)]
    assert took_s == pytest.approx([1 + 0.064, 0.096], rel=0, abs=1e-9)


@pytest.mark.slow
def test_with_gloos_schedules_an_all_gather_with_a_rank_that_has_ended_fails_at_the_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = (
        "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "if dist.get_rank() == 0:\n    try:\n        dist.all_gather_into_tensor(torch.empty(4), torch.ones(2))\n"
        "    except RuntimeError as error:\n        print('rank 0 got', error)\n"
    )
    (tmp_path / "script.py").write_text(text)
    run_script(tmp_path / "script.py", tmp_path / "run", pair(), block={"schedules": "gloo"})
    assert printed(tmp_path / "run", "a")[-1].endswith("script.py:5: all_gather 1: rank 1 (b) has ended")
    assert not [record for record in caplog.records if "never retrieved" in record.getMessage()]


def test_measured_processor_time_counts_in_products_of_matrices_as_a_calibration_timed_them(tmp_path: Path) -> None:
    text = "import torch\nfor _ in range(100):\n    torch.ones(100, 100) @ torch.ones(100, 100)\n"
    (tmp_path / "script.py").write_text(text)
    elapsed_s = {}
    for product in ("1 s", "1000 s"):
        topology = pair(nodes="a")
        topology["nodes"]["a"]["profile"] = {MATRIX_PRODUCT: {f"{PRODUCT_FLOPS} FLOP": product}}
        folder = tmp_path / product
        run = run_script(tmp_path / "script.py", folder, topology, block={"cost": "measured"})
        elapsed_s[product] = run.summary["elapsed_s"]
    # A thousand times as long, but for how much longer one of two equal scripts takes on a busy machine.
    assert elapsed_s["1000 s"] > 30 * elapsed_s["1 s"] > 0.0
