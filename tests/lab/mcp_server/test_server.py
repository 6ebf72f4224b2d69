"""Every tool, called through the SDK's own client in memory; what is refused; answers of a bounded size."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import simcluster

pytest.importorskip("mcp")

from mcp import Client

from simcluster.lab.mcp_server.bounds import MOST_CHARACTERS, bounded
from simcluster.lab.mcp_server.server import make_server
from simcluster.lab.mcp_server.tool_desk import ToolDesk
from tests.support.root import ROOT

LONG_S = 3600.0
"""A budget that no machine needs."""
QUICK = {"stop": {"steps": 3}}


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[ToolDesk]:
    made = ToolDesk(tmp_path, LONG_S)
    yield made
    made.close()


def call(desk: ToolDesk, name: str, **given: Any) -> dict[str, Any]:
    """The answer of a tool; an error's text as `error`."""

    async def ask() -> dict[str, Any]:
        async with Client(make_server(desk)) as client:
            found = await client.call_tool(name, given)
            if found.is_error:
                return {"error": found.content[0].text}
            answer: dict[str, Any] = found.structured_content or json.loads(found.content[0].text)
            return answer

    found = asyncio.run(ask())
    assert len(json.dumps(found)) <= MOST_CHARACTERS + 100
    assert "error" in found or isinstance(found["truncated"], bool)
    return found


def test_the_tools_are_those_of_the_documentation(desk: ToolDesk) -> None:
    async def names() -> list[tuple[str, str]]:
        async with Client(make_server(desk)) as client:
            return [(tool.name, tool.description or "") for tool in (await client.list_tools()).tools]

    found = asyncio.run(names())
    text = (ROOT / "docs" / "mcp.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    assert [name for name, _ in found] == [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert all(len(text) > 10 for _, text in found)


def test_list_names_everything_or_a_kind(desk: ToolDesk) -> None:
    assert "diloco" in call(desk, "list", kind="algorithms")["algorithms"]
    assert "smolcluster" in call(desk, "list")["topologies"]
    assert "did you mean 'algorithms'" in call(desk, "list", kind="algoritms")["error"]


@pytest.mark.slow
def test_an_algorithm_is_explained(desk: ToolDesk) -> None:
    found = call(desk, "explain", what="all_reduce_dp", nodes=3)
    assert (found["kind"], found["nodes"]) == ("algorithm", 3)


@pytest.mark.slow
def test_an_experiment_is_checked(desk: ToolDesk) -> None:
    assert call(desk, "check", experiment="quickstart")["ok"] is True
    found = call(desk, "check", experiment="quickstart", sets={"algorithm.pull_intervall": 2, "seed": -1})
    assert found["ok"] is False
    assert any("pull_interval" in text for text in found["problems"])
    assert any("seed" in text for text in found["problems"])


@pytest.mark.slow
def test_an_estimate_has_times_and_no_loss(desk: ToolDesk) -> None:
    found = call(desk, "estimate", experiment="quickstart", topology="star-8-gigabit", sets=QUICK, seed=2)
    assert (found["topology"], found["loss"], found["seed"]) == ("star-8-gigabit", None, 2)
    assert found["elapsed_s"] > 0


@pytest.mark.slow
def test_a_run_is_submitted_waited_for_explained_and_compared(desk: ToolDesk, tmp_path: Path) -> None:
    first = call(desk, "submit", experiment="quickstart", sets=QUICK, seed=5)
    second = call(desk, "submit", experiment="quickstart", algorithm="all_reduce_dp", sets=QUICK)
    assert (first["seed"], second["seed"]) == (5, 0)
    handles = [first["handle"], second["handle"]]
    for handle in handles:
        assert call(desk, "wait", handle=handle, seconds=LONG_S)["state"] == "done"
        assert call(desk, "status", handle=handle)["state"] == "done"
    found = call(desk, "result", handle=handles[0])
    assert (found["seed"], found["steps"], found["status"]) == (5, 3, "done")
    assert (tmp_path / handles[0] / "summary.json").is_file()
    assert call(desk, "explain", what=handles[0])["kind"] == "run"
    assert call(desk, "compare", handles=handles)["rows"]


def test_a_run_is_cancelled(desk: ToolDesk) -> None:
    handle = call(desk, "submit", experiment="quickstart", sets={"stop": {"steps": 100_000}})["handle"]
    assert call(desk, "wait", handle=handle, seconds=0)["state"] == "running"
    assert call(desk, "cancel", handle=handle)["state"] == "cancelled"
    assert "expected a" in call(desk, "result", handle=handle)["error"]


@pytest.mark.slow
def test_what_if_names_the_bottleneck(desk: ToolDesk, tmp_path: Path) -> None:
    (tmp_path / "pair.yaml").write_text(
        "topology: {generator: star, workers: 2}\nalgorithm: all_reduce_dp\nworkload: quadratic\nstop: {steps: 2}\n"
    )
    found = call(desk, "whatif", experiment="pair.yaml")
    assert found["goal"] == "step-time"
    assert found["answer"]


@pytest.mark.slow
def test_a_real_run_is_replayed(desk: ToolDesk, tmp_path: Path) -> None:
    simcluster.run("quickstart", backend="sockets", stop={"steps": 2}, report=False, out=tmp_path / "real")
    found = call(desk, "replay", handle="real")
    assert found["matches"] is True
    assert found["events"] > 0
    assert "a handle from submit" in call(desk, "status", handle="real")["error"]


@pytest.mark.parametrize(
    ("tool", "given", "said"),
    [
        ("estimate", {"experiment": "/etc/passwd"}, "a file below"),
        ("estimate", {"experiment": "../other.yaml"}, "a file below"),
        ("estimate", {"experiment": "quickstart", "sets": {"workload.data": "/etc/passwd"}}, "no path outside"),
        ("estimate", {"experiment": "quickstart", "sets": {"algorithm": "../mine.py:train"}}, "no path outside"),
        ("estimate", {"experiment": "quickstart", "sets": {"--out": "x"}}, "keys such as"),
        ("estimate", {"experiment": "quickstart", "algorithm": "/tmp/x.py:f"}, "a file below"),
        ("submit", {"experiment": "quickstart", "seed": -1}, "seed: found -1"),
        ("submit", {"experiment": "../x.yaml"}, "a file below"),
        ("result", {"handle": ".."}, "a handle from submit"),
        ("result", {"handle": "--help"}, "a handle from submit"),
        ("compare", {"handles": ["one"]}, "2 to 10 runs"),
        ("explain", {"what": "diloccco"}, "did you mean 'diloco'"),
        ("cancel", {"handle": "nothing"}, "a handle from submit"),
    ],
)
def test_what_is_no_name_or_leads_out_of_the_root_is_refused(
    desk: ToolDesk, tool: str, given: dict[str, Any], said: str
) -> None:
    assert said in call(desk, tool, **given)["error"]


def test_a_link_out_of_the_root_is_refused(
    desk: ToolDesk, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "e.yaml").write_text("topology: smolcluster\n")
    (tmp_path / "e.yaml").symlink_to(outside / "e.yaml")
    (tmp_path / "run").symlink_to(outside)
    assert "a file below" in call(desk, "check", experiment="e.yaml")["error"]
    assert "a handle from submit" in call(desk, "result", handle="run")["error"]


def test_a_call_ends_with_its_budget(tmp_path: Path) -> None:
    found = call(ToolDesk(tmp_path, 0.05), "estimate", experiment="quickstart")
    assert "more than the budget of 0.05 s" in found["error"]


def test_long_answers_are_cut_and_say_so() -> None:
    long = bounded({"name": "x", "rows": [{"text": "y" * 100, "number": n} for n in range(10_000)]})
    assert long["truncated"] is True
    assert long["name"] == "x"
    assert long["rows"][0] == {"text": "y" * 100, "number": 0}
    assert 0 < len(long["rows"]) <= 200
    assert len(json.dumps(long)) <= MOST_CHARACTERS + 20
    assert bounded({"rows": [1, 2]}) == {"rows": [1, 2], "truncated": False}
    deep = bounded({str(n): {"text": "z" * 3000} for n in range(5000)})
    assert deep["truncated"] is True
    assert len(json.dumps(deep)) <= MOST_CHARACTERS + 20


@pytest.mark.slow
def test_the_command_serves_on_standard_input_and_output(tmp_path: Path) -> None:
    from mcp import StdioServerParameters, stdio_client

    words = ["-m", "simcluster", "mcp", "--root", str(tmp_path)]
    server = StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))

    async def ask() -> str:
        async with Client(stdio_client(server)) as client:
            found = await client.call_tool("list", {"kind": "backends"})
            return str(found.content[0].text)

    assert "sockets" in json.loads(asyncio.run(ask()))["backends"]
