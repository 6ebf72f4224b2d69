"""Every verb and wrapper of torch.distributed does on a cluster what torch documents: the scripts raise otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.scripts.running import pair, printed, run_script

VERBS = "reductions gathers scatters messages waits functionals objects groups others refusals"
WRAPPERS = "replicas hooks uneven norms shards tensors stages"


def good_checks(script: str, folder: Path, *, nodes: str) -> str:
    """Return the names of the checks that *script*, a file beside this one, prints as good."""
    run = run_script(Path(__file__).with_name(script), folder, pair(nodes=nodes))
    assert run.summary["status"] == "done"
    return " ".join([line.removesuffix(" good") for line in printed(folder) if line.endswith(" good")])


@pytest.mark.exhaustive
def test_every_verb_is_right_also_in_a_group_of_four(tmp_path: Path) -> None:
    """With three ranks: see test_shipped."""
    assert good_checks("verbs.py", tmp_path / "run", nodes="abcd") == VERBS


@pytest.mark.slow
def test_every_wrapper_trains_as_one_process_does(tmp_path: Path) -> None:
    assert good_checks("wrappers.py", tmp_path / "run", nodes="abcd") == WRAPPERS
    saved = list((tmp_path / "run" / "files").rglob("saved/*.distcp"))
    assert len(saved) == 4
