"""The Docker files, as far as they can be tested without Docker: each command runs, and addresses and names agree."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from simcluster.topology import load
from tests.support.root import ROOT
from tests.support.socket_runs import GUARD_S

HERE = ROOT / "docs" / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((HERE / "compose.yaml").read_text(encoding="utf-8"))
SERVICES = COMPOSE["services"]
NODES = [name for name in SERVICES if re.fullmatch(r"n\d", name)]


def words_of(service: str) -> list[str]:
    """Return the words of the simcluster command of *service*."""
    command = SERVICES[service]["command"]
    text = command if isinstance(command, str) else command[-1]
    return shlex.split(text[text.index("simcluster") :])[1:]


def test_the_nodes_are_those_of_the_topology_at_its_addresses_and_rates() -> None:
    topology = load(HERE / "topology.yaml")
    assert topology.workers == NODES
    for name in NODES:
        words = words_of(name)
        address = SERVICES[name]["networks"]["shelf"]["ipv4_address"]
        assert topology.nodes[name].address == address
        assert words[:2] == ["node", name]
        assert words[words.index("--listen") + 1].startswith(f"{address}:")
        shaped = re.search(r"netem delay (\d+)ms rate (\d+)mbit", SERVICES[name]["command"][-1])
        assert shaped is not None
        # Each way crosses two links of the model; the containers' delay is that of the whole way.
        links = [link for link in topology.links if name in (link.a, link.b)]
        assert [2 * link.latency_s * 1e3 for link in links] == [float(shaped[1])]
        assert [link.bandwidth_Bps * 8 / 1e6 for link in links] == [float(shaped[2])]


def test_prometheus_asks_the_coordinator_and_grafana_both() -> None:
    words = words_of("run")
    prometheus = yaml.safe_load((HERE / "prometheus.yaml").read_text(encoding="utf-8"))
    (scrape,) = prometheus["scrape_configs"]
    assert scrape["static_configs"][0]["targets"] == [words[words.index("--coordinator") + 1]]
    assert scrape["authorization"]["credentials_file"] == words[words.index("--token-file") + 1]
    sources = yaml.safe_load((HERE / "grafana" / "datasources.yaml").read_text(encoding="utf-8"))["datasources"]
    assert {source["type"]: source["url"].split("/")[2].split(":")[0] for source in sources} == {
        "prometheus": "prometheus", "loki": "loki",
    }  # fmt: skip
    providers = yaml.safe_load((HERE / "grafana" / "dashboards.yaml").read_text(encoding="utf-8"))["providers"]
    mounts = dict(volume.split(":")[:2][::-1] for volume in SERVICES["grafana"]["volumes"])
    folder = (HERE / mounts[providers[0]["options"]["path"]]).resolve()
    assert json.loads((folder / "simcluster.json").read_text(encoding="utf-8"))["panels"]


def test_every_mounted_file_and_named_service_is_there() -> None:
    for service in SERVICES.values():
        assert set(service.get("depends_on", {})) <= set(SERVICES)
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            made = source in COMPOSE["volumes"] or source == "./runs"
            assert made or (HERE / source).exists(), source
    build = SERVICES["key"]["build"]
    assert (HERE / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback address")
def test_the_commands_run_on_loopback_until_the_run_is_done(tmp_path: Path) -> None:
    for name in ("experiment.yaml", "topology.yaml"):
        (tmp_path / name).write_text((HERE / name).read_text().replace("10.30.0.", "127.30.0."))
    places = {"10.30.0.": "127.30.0.", "/keys/": f"{tmp_path}/", "/here/": f"{tmp_path}/", "/runs/": f"{tmp_path}/"}

    def begin(service: str) -> subprocess.Popen[str]:
        words = words_of(service)
        if "--loki" in words:  # there is none here
            del words[words.index("--loki") : words.index("--loki") + 2]
        for old, new in places.items():
            words = [word.replace(old, new) for word in words]
        more = ["--set", "stop.steps=3", "--no-report", "--option", "dead_s=60"] if service == "run" else []
        return subprocess.Popen(
            [sys.executable, "-m", "simcluster", *words, *more],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    made = begin("key")
    made.communicate(timeout=GUARD_S)
    assert made.returncode == 0
    processes = {service: begin(service) for service in ("run", *NODES)}
    try:
        said, _ = processes["run"].communicate(timeout=GUARD_S)
        assert processes["run"].returncode == 0, said
        assert [processes[name].wait(GUARD_S) for name in NODES] == [0] * len(NODES)
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()
    summary = json.loads((tmp_path / "five-nodes" / "summary.json").read_text())
    assert (summary["status"], summary["steps"]) == ("done", 3)
