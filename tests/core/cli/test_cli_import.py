"""`simcluster import`, and the options for what a file lacks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from simcluster.topology import load

GML = 'graph [ node [ id 0 label "São Paulo" ] node [ id 1 label "Rio" ] edge [ source 0 target 1 LinkSpeedRaw 2e9 ] ]'
OPTIONS = ("--device", "raspberry-pi-5", "--latency", "3 ms")


def test_import_writes_yaml_that_says_where_each_number_comes_from(command: Any, tmp_path: Path) -> None:
    (tmp_path / "net.gml").write_text(GML)
    out = tmp_path / "net.yaml"
    code, printed, _ = command("import", str(tmp_path / "net.gml"), *OPTIONS, "--out", str(out))
    assert code == 0
    assert printed.splitlines()[-1] == str(out)
    text = out.read_text()
    assert "  Sao_Paulo: {device: raspberry-pi-5}  # from the command: --device\n" in text
    comment = "# bandwidth: LinkSpeedRaw 2000000000.0; from the command: --latency"
    assert f"  - {{between: [Sao_Paulo, Rio], bandwidth: 2 Gbps, latency: 3 ms}}  {comment}\n" in text
    assert load(out) == load(tmp_path / "net.gml", device="raspberry-pi-5", latency="3 ms")


@pytest.mark.parametrize("label", ["1e3", "0o17", "0x1F", "007", "null", "yes", "1_000", "12e03"])
def test_import_writes_names_that_are_read_as_the_same_text(label: str, command: Any, tmp_path: Path) -> None:
    (tmp_path / "net.gml").write_text(GML.replace("Rio", label))
    out = tmp_path / "net.yaml"
    assert command("import", str(tmp_path / "net.gml"), *OPTIONS, "--out", str(out))[0] == 0
    assert load(out).workers == ["Sao_Paulo", label]


def test_import_into_another_folder_keeps_the_way_to_a_trace(command: Any, tmp_path: Path) -> None:
    edge = {"source": "a", "target": "b", "bandwidth": "1 Gbps", "trace": {"file": "x.csv"}}
    (tmp_path / "net.json").write_text(json.dumps({"nodes": [{"id": "a"}, {"id": "b"}], "edges": [edge]}))
    (tmp_path / "x.csv").write_text("time_s,factor\n0,0.5\n")
    (tmp_path / "sub").mkdir()
    out = tmp_path / "sub" / "net.yaml"
    assert command("import", str(tmp_path / "net.json"), *OPTIONS, "--out", str(out))[0] == 0
    assert "trace: {file: ../x.csv}" in out.read_text()
    assert load(out).links[0].trace == load(tmp_path / "net.json", device="mac-mini-m4", latency="3 ms").links[0].trace


def test_import_of_a_file_that_lacks_numbers_writes_nothing(command: Any, tmp_path: Path) -> None:
    (tmp_path / "net.gml").write_text(GML)
    out = tmp_path / "net.yaml"
    code, _, error = command("import", str(tmp_path / "net.gml"), "--out", str(out))
    assert (code, out.exists()) == (2, False)
    assert "found 2 nodes without a device, 1 edge without a latency" in error
    assert "expected --device raspberry-pi-5 --latency '1 ms', for all that lack them" in error
    (tmp_path / "own.yaml").write_text("nodes: {a: {device: mac-mini-m4}}\n")
    code, _, error = command("import", str(tmp_path / "own.yaml"), "--out", str(out))
    assert (code, out.exists()) == (2, False)
    assert "YAML or a form that is unknown" in error


def test_import_replaces_a_file_only_by_its_name(command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.gml").write_text(GML)
    Path("net.yaml").write_text("mine")
    code, _, error = command("import", "net.gml", *OPTIONS)
    assert (code, Path("net.yaml").read_text()) == (2, "mine")
    assert "--out: found the file net.yaml, which exists, expected --out FILE, to replace it" in error
    assert command("import", "net.gml", *OPTIONS, "--out", "net.yaml")[0] == 0


def test_commands_take_defaults_for_a_topology(command: Any, tmp_path: Path) -> None:
    (tmp_path / "net.gml").write_text(GML)
    code, printed, _ = command("topology", "check", str(tmp_path / "net.gml"), *OPTIONS)
    assert code == 0
    assert "Sao_Paulo-Rio  2 Gbps     3 ms" in printed
    code, _, error = command("doctor", "--device", "raspberry-pi-5")
    assert code == 2
    assert "--device: found it without a topology" in error


@pytest.mark.slow
def test_a_run_takes_them_too(command: Any, tmp_path: Path) -> None:
    (tmp_path / "net.gml").write_text(GML)
    words = ("run", "quickstart", "--topology", str(tmp_path / "net.gml"), *OPTIONS, "--set", "stop.steps=1")
    code, printed, _ = command(*words, "--no-report", "--out", str(tmp_path / "run"), "--set", "numerics=none")
    assert code == 0
    assert " on net (sim, seed " in printed


@pytest.mark.slow
def test_a_node_imports_no_reader_of_other_tools() -> None:
    program = "import sys, simcluster.experiment.node; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    readers = [name for name in done.stdout.split() if name.startswith("simcluster.topology.read.formats.")]
    assert readers == ["simcluster.topology.read.formats.cluster"]
    assert {"defusedxml", "pandas"}.isdisjoint(done.stdout.split())
