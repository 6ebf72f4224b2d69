"""One seed, one run: what user code draws from the global generators, on any backend, whatever was drawn before."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from simcluster_backends.torch.node import check_alike

import simcluster
from simcluster.errors import LaunchFailed
from simcluster.experiment.read.read import read_experiment
from simcluster.job import unlike
from simcluster.process.generators import copied
from simcluster.topology import star
from simcluster.workloads.data.samples import HASHED_BYTES, Samples
from tests.core.experiment.test_doubts import APPLY, BEGIN, LOOP, RECORD, WORK
from tests.support.levels import sample_of

SPLIT = """
import numpy as np, random, torch
from torch import nn
from torch.utils.data import Dataset, random_split
from simcluster import Workload

NOISE = np.random.rand()

class Augmented(Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, number):
        x = torch.full((3,), float(number)) + random.random() + NOISE
        return x + torch.randn(3), number % 2

class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.scale = nn.Linear(3, 2), np.random.rand()
    def forward(self, x):
        return self.layer(x) * self.scale + np.random.rand() + torch.rand(1)

def make():
    train, test = random_split(Augmented(), [32, 8])
    optimizer = lambda parameters: torch.optim.SGD(parameters, 0.1)
    return Workload(Noisy, nn.functional.cross_entropy, train, optimizer, 4, test=test)
"""
NOISE = "        gradients = [g + torch.randn_like(g) * np.random.randn() for g in gradients]\n"
ALGORITHM = "import numpy as np\nimport torch\n\n" + BEGIN + LOOP + WORK + NOISE + APPLY + RECORD


def experiment(folder: Path, **keys: Any) -> dict[str, Any]:
    (folder / "algo.py").write_text(ALGORITHM)
    (folder / "work.py").write_text(SPLIT)
    return {
        "topology": star(2, device="mac-mini-m4", bandwidth="1 Gbps", latency="50 us").document,
        "algorithm": {"path": f"{folder / 'algo.py'}:algo"},
        "workload": {"path": f"{folder / 'work.py'}:make"},
        "stop": {"steps": 3},
        **keys,
    }


def draw() -> None:
    random.random(), np.random.randn(), torch.randn(1)


@pytest.mark.slow
def test_two_runs_of_one_seed_end_with_the_same_weights_and_the_callers_generators_are_as_they_were(
    tmp_path: Path,
) -> None:
    found = []
    for number, seed in enumerate((0, 1, 0)):
        draw()
        before = copied()
        run = simcluster.run(experiment(tmp_path, seed=seed), out=tmp_path / str(number), report=False)
        assert copied() == before
        assert run.warnings == []
        found.append((run.summary["weights_sha256"], run.summary["trace_sha256"]))
    assert found[0] == found[2] != found[1]


@pytest.mark.slow
def test_sockets_equal_the_simulator(tmp_path: Path) -> None:
    weights = set()
    for backend in ("sim", "sockets"):
        run = simcluster.run(experiment(tmp_path), backend=backend, out=tmp_path / backend, report=False)
        weights.add(run.summary["weights_sha256"])
    assert len(weights) == 1


DRAWING_LOSS = """
import {module}
import torch
from torch import nn
from simcluster import Workload
from simcluster.workloads import sgd

def noisy(outputs, targets):
    scale = 1 + float({draw}) if outputs.requires_grad else 1
    return scale * nn.functional.cross_entropy(outputs, targets)

def make():
    inputs = torch.randn(64, 6)
    model = lambda: nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
    return Workload(model, noisy, (inputs, (inputs[:, 0] > 0).long()), sgd(0.1), 8)
"""


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["zero", "pipeline", "tensor_parallel"])
@pytest.mark.parametrize("draw", sample_of(["numpy.random.rand()", "random.random()", "torch.rand(())"]))
def test_a_loss_may_draw_in_a_model_that_is_used_layer_by_layer(algorithm: str, draw: str, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(DRAWING_LOSS.format(module=draw.partition(".")[0], draw=draw))
    before = copied()
    weights = set()
    for number in range(2):
        run = simcluster.run(
            {
                "topology": star(2, device="mac-mini-m4", bandwidth="1 Gbps", latency="50 us").document,
                "algorithm": {"name": algorithm},
                "workload": {"path": f"{tmp_path / 'work.py'}:make"},
                "stop": {"steps": 2},
            },
            out=tmp_path / str(number),
            report=False,
        )
        weights.add(run.summary["weights_sha256"])
    assert len(weights) == 1
    assert copied() == before


def test_another_seed_makes_other_samples_and_other_module_level_numbers(tmp_path: Path) -> None:
    first, other, again = (read_experiment(experiment(tmp_path, seed=seed)).workload for seed in (0, 1, 0))
    assert first.digests == again.digests
    assert all(mine != theirs for mine, theirs in zip(first.digests, other.digests, strict=True))


def test_draws_from_the_systems_randomness_are_named_with_their_lines(tmp_path: Path) -> None:
    given = experiment(tmp_path)
    algorithm = ALGORITHM.replace("np.random.randn()", "np.random.default_rng().normal()")
    (tmp_path / "algo.py").write_text(algorithm)
    (tmp_path / "work.py").write_text(SPLIT.replace("def make():", "def make():\n    np.random.default_rng()"))
    run = simcluster.run(given, out=tmp_path / "run", report=False)
    warnings = [row for row in run.summary["warnings"] if row["kind"] == "system_randomness"]
    assert [Path(row["at"].split(":")[0]).name for row in warnings] == ["algo.py", "work.py"]
    assert all("node.rng" in row["text"] for row in warnings)
    assert "algo.py:7 (" in warnings[0]["at"]


def test_ranks_with_other_samples_are_named() -> None:
    assert unlike({"rank 0 (a)": ["x", "y"], "rank 1 (b)": ["x", "y"]}) == []
    assert unlike({"rank 0 (a)": ["x", "y"], "rank 1 (b)": ["z", "y"], "rank 2 (c)": ["x"]}) == [
        "rank 1 (b) holds other samples than rank 0 (a)",
        "rank 2 (c) holds other held-out samples than rank 0 (a)",
    ]
    with pytest.raises(LaunchFailed, match=r"rank 1 \(b\) holds other samples than rank 0 \(a\)"):
        check_alike(["a", "b"], ['["x"]', '["z"]'])


def test_a_digest_tells_samples_apart_and_reads_little_of_a_large_set() -> None:
    inputs, targets = torch.arange(12.0).reshape(4, 3), torch.arange(4)
    plain = Samples(inputs, targets).digest()
    assert plain == Samples(inputs.clone(), targets).digest()
    others = [inputs + 1, inputs.reshape(4, 3, 1), inputs.double(), inputs.flip(0)]
    assert len({plain, *(Samples(other, targets).digest() for other in others)}) == 5
    rows = HASHED_BYTES // 4
    large = torch.zeros(rows, 1).expand(rows, 8).contiguous()
    changed = large.clone()
    changed[-1, 0] = 1.0
    assert Samples(large, large).digest() != Samples(changed, changed).digest()
