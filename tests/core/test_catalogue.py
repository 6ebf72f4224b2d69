"""What can be named: every table, and the names alone without waiting for torch."""

from __future__ import annotations

import ast
import inspect
import json
import pkgutil
import subprocess
import sys
from typing import Any

import pytest

import simcluster
from simcluster import catalogue as listed
from simcluster.algorithms import ALGORITHMS
from simcluster.catalogue import KINDS, catalogue, names
from simcluster.documents.settings import settings_of
from simcluster.lab.verify.claims import claim_about
from simcluster.topology.presets.devices import DEVICES
from simcluster.workloads import WORKLOADS
from tests.support.root import ROOT


@pytest.mark.parametrize("kind", ["kinds", *KINDS])
def test_the_names_alone_are_those_of_the_catalogue(kind: str) -> None:
    assert names(kind) == list(catalogue(kind))
    assert names(kind)


def test_every_algorithm_and_workload_is_listed_with_its_settings() -> None:
    assert names("algorithms") == sorted(ALGORITHMS)
    assert names("workloads") == sorted(WORKLOADS)
    assert catalogue("algorithms")["edp"].startswith("(pull_interval=1, max_staleness=None, damping='none', ")


@pytest.mark.parametrize(("kind", "functions"), [("algorithms", ALGORITHMS), ("workloads", WORKLOADS)])
def test_what_is_read_from_the_source_is_what_the_functions_have(kind: str, functions: dict[str, Any]) -> None:
    listed = catalogue(kind)
    assert list(listed) == sorted(functions)
    for name, function in functions.items():
        settings = [(s.name if s.required else f"{s.name}={s.default!r}") for s in settings_of(function)]
        first_line = (inspect.getdoc(function) or "").partition("\n")[0].replace("*", "")
        assert listed[name] == f"({', '.join(settings)})  {first_line}"


def test_a_default_that_is_named_is_listed_by_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {
        "simcluster.mine": "from simcluster.theirs import FAST as QUICK\n"
        "RATE: Final = 0.5\nAGAIN = RATE\nHALF = 1 / 2\n"
        "async def mine(node, replica, *, a=AGAIN, b=QUICK, c=HALF, d=-1, e=UNKNOWN, f): 'Do.'",
        "simcluster.theirs": "FAST = (1, 2)\n",
    }
    monkeypatch.setattr(listed, "_source", lambda module: ast.parse(sources[module]).body)
    monkeypatch.setattr(listed, "_homes", lambda kind: {"mine": "simcluster.mine"})
    assert catalogue("algorithms") == {"mine": "(a=0.5, b=(1, 2), c=HALF, d=-1, e=UNKNOWN, f)  Do."}


def test_links_and_devices_are_listed_with_fields_for_machines(command: Any) -> None:
    link = json.loads(command("list", "links", "--json")[1])["links"]["ethernet-1g"]
    # 0.941 of the line rate: 1448 of 1538 bytes.
    assert link["bandwidth_bps"] == pytest.approx(941e6, rel=1e-3)
    assert (link["latency_s"], link["duplex"]) == (1e-4, "full")
    devices = json.loads(command("list", "devices", "--json")[1])["devices"]
    assert set(devices) == set(DEVICES)
    mini = devices["mac-mini-m4"]
    assert (mini["computes_on"], mini["accelerator"]["computes_on"]) == ("cpu", "mps")
    assert mini["accelerator"]["flops_per_s"] == DEVICES["mac-mini-m4"].on("mps").flops_per_s
    assert all(isinstance(about["flops_per_s"], float) and about["source"] for about in devices.values())


@pytest.mark.slow
def test_names_come_without_torch() -> None:
    code = (
        "import sys; from simcluster.catalogue import KINDS, names; [names(kind) for kind in KINDS];"
        "print([heavy for heavy in ('torch', 'pandas', 'plotly') if heavy in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def row_of(algorithm: str) -> str:
    """The line of docs/algorithms.md about *algorithm*."""
    text = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    (row,) = [line for line in text.splitlines() if line.startswith(f"| [{algorithm}](algorithms/{algorithm}.md)")]
    return row


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_every_algorithm_has_a_page_of_code_a_page_of_text_and_a_row_that_its_claim_bears_out(algorithm: str) -> None:
    code = inspect.getsource(sys.modules[ALGORITHMS[algorithm].__module__])
    assert 50 <= len(code.splitlines()) <= 160
    page = (ROOT / "docs" / "algorithms" / f"{algorithm}.md").read_text(encoding="utf-8")
    missing = [setting.name for setting in settings_of(ALGORITHMS[algorithm]) if f"`{setting.name}`" not in page]
    assert missing == []
    claim = claim_about(algorithm)
    assert claim is not None
    lost = row_of(algorithm).rstrip(" |").rsplit("| ", 1)[1]
    assert lost.startswith("fails" if claim.outcomes["crash of a worker"] == "fails" else "goes on")


def test_no_module_takes_the_name_of_what_import_simcluster_hands_out() -> None:
    """Importing it would put the module in its place."""
    names = {module.name for module in pkgutil.iter_modules(simcluster.__path__)}
    assert not names & set(simcluster.__all__)
