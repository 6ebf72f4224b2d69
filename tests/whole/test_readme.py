"""The code that README and docs/getting-started.md show is what the repository holds, and it runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import simcluster
from tests.support.root import ROOT

README = (ROOT / "README.md").read_text()
GETTING_STARTED = (ROOT / "docs" / "getting-started.md").read_text()


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def test_the_code_shown_is_the_code_shipped() -> None:
    own = ROOT / "experiments" / "own"
    assert blocks("python", README) == [(own / "local_sgd.py").read_text()]
    assert blocks("python", GETTING_STARTED) == [(own / "spirals.py").read_text()]
    shipped = [line for line in (own / "own.yaml").read_text().splitlines() if not line.startswith("#")]
    assert blocks("yaml", GETTING_STARTED) == ["\n".join(shipped) + "\n"]
    (algorithm,) = blocks("python", README)
    assert len([line for line in algorithm.splitlines() if line.strip()]) <= 20


@pytest.mark.slow
def test_ones_own_algorithm_model_and_data_end_with_the_same_weights_on_both_backends(tmp_path: Path) -> None:
    weights = set()
    for backend in ("sim", "sockets"):
        experiment = ROOT / "experiments" / "own" / "own.yaml"
        run = simcluster.run(experiment, backend=backend, out=tmp_path / backend, report=False)
        assert run.summary["algorithm"] == "local_sgd.py:local_sgd"
        assert run.summary["accuracy"] >= 0.95
        # 4 ranks; an average every 5 of 300 steps: 60 rings of 2 (4-1) messages a rank
        assert run.summary["messages_sent"] == 4 * 60 * 6
        weights |= {node["weights_sha256"] for node in run.summary["nodes"].values()}
    assert len(weights) == 1


def test_the_commands_shown_exist() -> None:
    from typer.main import get_command

    from simcluster.cli.app import app

    commands = get_command(app).commands  # type: ignore[attr-defined]
    shown = set(re.findall(r"^    simcluster ([a-z]+)", README + GETTING_STARTED, flags=re.MULTILINE))
    assert {"run", "sweep", "compare"} <= shown <= set(commands)
