"""The algorithm obeys the laws that `simcluster verify` knows, and trains."""

from pathlib import Path

import simcluster

HERE = Path(__file__).parent


def test_the_algorithm_obeys_every_law() -> None:
    found = simcluster.verify(f"{HERE / 'local_sgd.py'}:local_sgd", quick=True, backend="sim")
    assert found.ok, found.table()


def test_the_ranks_end_with_the_same_weights_and_learn(tmp_path: Path) -> None:
    run = simcluster.run(HERE / "experiment.yaml", out=tmp_path / "run", report=False)
    assert len({node["weights_sha256"] for node in run.summary["nodes"].values()}) == 1
    assert run.summary["accuracy"] > 0.8
