"""Mistakes that leave a run that looks well fail a law of `verify`."""

from __future__ import annotations

from pathlib import Path

import pytest

from simcluster.lab.verify import verify
from tests.core.experiment.test_doubts import APPLY, BEGIN, CACHES, LOOP, MISTAKES, RECORD, WORK

LAWS = {
    "outside_compute": "work in node.compute",
    "in_place": "work in node.compute",
    "no_time": "work in node.compute",
    "not_awaited": "everything awaited",
    "shared_state": "no shared state",
    "no_step": "steps recorded",
    "untrained": "steps recorded",
}
ONLY = ["work", "finite", "awaited", "recorded", "apart"]


def written(folder: Path, code: str) -> str:
    (folder / "algo.py").write_text(code)
    return f"{folder / 'algo.py'}:algo"


@pytest.mark.parametrize("mistake", [mistake for mistake, (_, kind, *_) in MISTAKES.items() if kind in LAWS])
def test_a_mistake_fails_the_law_for_it_and_no_other(mistake: str, tmp_path: Path) -> None:
    code, kind, _, line = MISTAKES[mistake]
    found = verify(written(tmp_path, code), backend="sim", nodes=[2], only=ONLY)
    assert [check.name for check in found.failed] == [LAWS[kind]], found.table()
    assert f"algo.py:{line} " in found[LAWS[kind]].reason or not line


@pytest.mark.parametrize("code", [LOOP + WORK + APPLY + RECORD, *CACHES.values()], ids=["plain", *CACHES])
def test_what_is_right_keeps_these_laws(code: str, tmp_path: Path) -> None:
    code = code + APPLY + RECORD if code in CACHES.values() else BEGIN + code
    found = verify(written(tmp_path, code), backend="sim", nodes=[1, 2], only=ONLY)
    assert [check.verdict for check in found.checks] == ["holds"] * 5, found.table()


def test_a_loss_that_is_not_finite_fails(tmp_path: Path) -> None:
    code = BEGIN + LOOP + WORK + APPLY + RECORD.replace("loss=loss", "loss=loss / 0.0 if loss < 0 else float('nan')")
    found = verify(written(tmp_path, code), backend="sim", nodes=[2], only=["finite"])
    assert "the loss is nan from step 1 on" in found["finite numbers"].reason


def test_weights_that_are_not_finite_fail(tmp_path: Path) -> None:
    code = BEGIN + LOOP + WORK + APPLY + RECORD + "    replica.parameters[0].fill_(float('inf')) if node.rank else 0\n"
    found = verify(written(tmp_path, code), backend="sim", nodes=[2], only=["finite"])
    assert "rank 1 ends with weights that are infinite" in found["finite numbers"].reason
