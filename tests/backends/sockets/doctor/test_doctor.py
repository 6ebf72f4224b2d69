"""`simcluster doctor`: a row for every node, a line with what to do for every problem, and never a hang."""

from __future__ import annotations

import json
import shlex
import socket
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from simcluster_backends.sockets.doctor.links import links_taken
from simcluster_backends.sockets.doctor.probe import MachineAnswers
from simcluster_backends.sockets.doctor.problems import troubles_of, why_not_asked
from simcluster_backends.sockets.doctor.routes import read_ip_route, read_route_get
from simcluster_backends.sockets.launcher import facts as facts_here
from simcluster_backends.sockets.launcher.machine_messages import (
    Fingerprint,
    MachineFacts,
    MachineReport,
    fingerprint,
    line_of,
)

from simcluster.topology import loads
from simcluster.version import __version__
from tests.support.root import ROOT
from tests.support.sshd import Sshd

NOWHERE = "192.0.2.77"
"""An address of the range for documentation: no machine has it (RFC 5737)."""


def topology(folder: Path, **nodes: dict[str, Any]) -> str:
    names = list(nodes)
    links = [{"between": pair, "bandwidth": "1 Gbps", "latency": "1 ms"} for pair in pairwise(names)]
    file = folder / "shelf.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "name": "shelf",
                "nodes": {name: {"flops": "1 GFLOP/s", **keys} for name, keys in nodes.items()},
                "links": [{**link, "between": list(link["between"])} for link in links],
            }
        )
    )
    return str(file)


def examined(command: Any, *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, err = command("doctor", *arguments, "--json")
    assert err == ""
    told = json.loads(out)
    assert told["ok"] == (code == 0)
    return code, {row["node"]: row for row in told["nodes"]}


@pytest.mark.slow
def test_nodes_without_an_address_are_this_machine(command: Any, tmp_path: Path) -> None:
    code, rows = examined(command, topology(tmp_path, a={}, b={}, c={"address": "127.0.0.1"}))
    assert code == 0
    versions = fingerprint().versions
    for row in rows.values():
        assert (row["way"], row["ssh"], row["route"], row["problems"]) == ("here", None, None, [])
        assert (row["python"], row["simcluster"], row["torch"]) == (versions["python"], __version__, versions["torch"])
        assert row["free_memory_bytes"] > 0
        assert row["accelerator"]
        # One clock: both readings lie between question and answer.
        assert abs(row["clock_offset_ms"]) <= row["clock_uncertainty_ms"]


@pytest.mark.slow
def test_the_table_has_a_row_for_every_node_and_says_that_all_is_well(command: Any, tmp_path: Path) -> None:
    code, out, _ = command("doctor", topology(tmp_path, a={}, b={}))
    head, a, b, _, last = out.splitlines()
    assert (code, last) == (0, "no problem found")
    assert head.split()[:3] == ["node", "reach", "ssh"]
    assert [line.split()[:2] for line in (a, b)] == [["a", "here"], ["b", "here"]]


@pytest.mark.slow
def test_a_node_by_ssh_is_asked_by_the_command_that_a_run_would_use(command: Any, server: Sshd, tmp_path: Path) -> None:
    python = tmp_path / 'my $(touch owned) py\'thon "3"'
    python.write_text(f'#!/bin/sh\ncd /\nPYTHONPATH={ROOT} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    node = {"ssh": server.host, "python": str(python)}
    shelf = topology(tmp_path, a=node, b={**node, "address": "127.0.0.1", "port": 52399}, c={})
    code, rows = examined(command, shelf, "--ssh-config", str(server.config))
    assert [row["problems"] for row in rows.values()] == [[], [], []]
    assert code == 0
    for name in "ab":
        assert (rows[name]["way"], rows[name]["ssh_works"], rows[name]["simcluster"]) == ("ssh", True, __version__)
        assert rows[name]["route"]["source"] == "127.0.0.1"
    assert not list(Path.home().glob("owned"))


@pytest.mark.slow
def test_machines_that_cannot_take_part_have_rows_with_what_to_do(command: Any, server: Sshd, tmp_path: Path) -> None:
    shelf = topology(
        tmp_path,
        fine={},
        bare={"ssh": server.host, "command": ["/no such/simcluster"]},
        strange={"ssh": f"nobody@{server.host}"},
        elsewhere={"ssh": server.host, "python": sys.executable, "address": NOWHERE, "port": 9},
    )
    code, rows = examined(command, shelf, "--ssh-config", str(server.config), "--timeout", "60")
    assert code == 1
    assert rows["fine"]["problems"] == []
    (bare,) = rows["bare"]["problems"]
    assert "exit code 127" in bare["what"]
    assert "PATH" in bare["do"]
    (strange,) = rows["strange"]["problems"]
    assert "Permission denied" in strange["what"]
    assert strange["do"].startswith(f"let your key in: ssh-copy-id nobody@{server.host}")
    assert [rows[name]["ssh_works"] for name in ("fine", "bare", "strange")] == [None, True, False]
    whats = [problem["what"] for problem in rows["elsewhere"]["problems"]]
    assert any(f"it cannot listen at its address {NOWHERE}" in what for what in whats)


@pytest.mark.slow
def test_a_machine_that_never_answers_is_given_up_in_time(command: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and says nothing
        port = silent.getsockname()[1]
        config = tmp_path / "config"
        config.write_text(f"Host mute\n  HostName 127.0.0.1\n  Port {port}\n")
        shelf = topology(tmp_path, mute={"ssh": "mute"})
        code, rows = examined(command, shelf, "--ssh-config", str(config), "--timeout", "3")
    assert code == 1
    (problem,) = rows["mute"]["problems"]
    assert problem["what"] == "no answer within 3 s"
    assert "--timeout SECONDS" in problem["do"]


def test_an_agent_with_another_version_and_clock_is_described_in_words(tmp_path: Path) -> None:
    here = Fingerprint({"simcluster": "0.1.0", "torch": "2.9.0"}, {})
    answers = MachineAnswers(Fingerprint({"simcluster": "0.0.9", "torch": "2.9.0"}, {}), -3.5, 0.2)
    answers.facts = MachineFacts(1, "none", {"10.0.0.1": "Cannot assign requested address"}, {"10.0.0.2": ""})
    assert [trouble.what for trouble in troubles_of(answers, here, "10.0.0.1")] == [
        "simcluster 0.0.9, here 0.1.0",
        "its clock is 3.5 s behind",
        "it cannot listen at its address 10.0.0.1: Cannot assign requested address",
        "it has no route to 10.0.0.2",
    ]
    answers.clock_offset_s = 1.1  # 1.1 s less 0.2 s of uncertainty is within the limit of 1 s
    assert len(troubles_of(answers, here, None)) == 2


@pytest.mark.parametrize(
    ("said", "do"),
    [
        ("ssh: connect to host pi5 port 22: Connection refused", "Remote Login"),
        ("ssh: Could not resolve hostname pi5: Name or service not known", "~/.ssh/config"),
        ("Host key verification failed.", "accept its host key once: ssh me@pi5"),
        ("something new", "make this work first: ssh me@pi5 true"),
    ],
)
def test_what_ssh_says_leads_to_what_to_do(said: str, do: str) -> None:
    answers = MachineAnswers(failure="ended with exit code 255", exit_code=255)
    answers.lines.append(said)
    trouble = why_not_asked(answers, "me@pi5")
    assert do in trouble.do
    assert said in trouble.what


def test_an_agent_that_stops_after_its_report_keeps_its_versions(command: Any, server: Sshd, tmp_path: Path) -> None:
    (tmp_path / "report").write_bytes(b"Welcome!\n" + line_of(MachineReport(fingerprint())))
    words = ["sh", "-c", f"cat {shlex.quote(str(tmp_path / 'report'))}"]
    shelf = topology(tmp_path, old={"ssh": server.host, "command": words})
    code, rows = examined(command, shelf, "--ssh-config", str(server.config))
    assert (code, rows["old"]["simcluster"]) == (1, __version__)
    (problem,) = rows["old"]["problems"]
    assert problem["what"].startswith("facts are missing: ended with exit code 0: Welcome!")


def test_the_commands_of_both_systems_are_read() -> None:
    linux = '[{"dst":"10.0.0.9","gateway":"10.0.0.1","dev":"eth0","prefsrc":"10.0.0.5","flags":[],"uid":0}]'
    assert read_ip_route(linux) == ("eth0", "10.0.0.1")
    macos = "   route to: 10.10.0.2\n    gateway: 10.10.0.1\n  interface: bridge0\n      flags: <UP>\n"
    assert read_route_get(macos) == ("bridge0", "10.10.0.1")
    for text in ("", "[]", "{}", "[1]", "null", "nonsense"):
        assert read_ip_route(text) == (None, None)
        assert read_route_get(text) == (None, None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere.yaml",), "nowhere.yaml"),
        (("smolcluster", "--timeout", "0"), "more than 0 and at most 600 s"),
        (("smolcluster", "--timeout", "601", "--ssh-option", "Port"), "KEY=VALUE"),
    ],
)
def test_a_bad_request_is_refused_before_anything_is_asked(
    arguments: tuple[str, ...], words: str, command: Any
) -> None:
    code, out, err = command("doctor", *arguments)
    assert (code, out) == (2, "")
    assert words in err


@pytest.mark.slow
def test_a_machine_without_ssh_says_so(command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = topology(tmp_path, a={}, b={"ssh": "b"})
    monkeypatch.setenv("PATH", str(tmp_path))
    code, rows = examined(command, shelf)
    assert code == 1
    assert rows["a"]["problems"] == []
    (problem,) = rows["b"]["problems"]
    assert problem == {
        "what": "ssh cannot be started: No such file or directory",
        "do": "install it on this machine, or correct PATH",
    }


def test_a_refused_ssh_is_a_problem_of_its_own_with_its_port() -> None:
    answers = MachineAnswers(failure="ended with exit code 255", exit_code=255)
    answers.lines.append("ssh: connect to host 10.0.0.7 port 2222: Connection refused")
    trouble = why_not_asked(answers, "me@pi5")
    assert trouble.what.startswith("ssh is refused on port 2222 of me@pi5: ")
    assert "switch its ssh server on" in trouble.do


@pytest.mark.slow
def test_a_node_that_asks_for_an_accelerator_that_is_not_there_has_a_problem() -> None:
    answers = MachineAnswers()
    answers.facts = MachineFacts(1, "cuda (some card)", {}, {}, {"cuda": 2})
    here = Fingerprint({}, {})
    assert [troubles_of(answers, here, None, asked) for asked in ("cpu", "auto", "cuda", "cuda:1")] == [[]] * 4
    (trouble,) = troubles_of(answers, here, None, "cuda:2")
    assert trouble.what.endswith("not there; expected cpu, auto or what torch finds there: cuda:0 to cuda:1")


def test_doctor_names_the_link_that_packets_take_and_one_that_the_topology_does_not_mean() -> None:
    links = [
        {"between": ["a", "b"], "type": "ethernet-1g", "subnet": "192.168.1.0/24"},
        {"between": ["a", "b"], "type": "thunderbolt-4", "subnet": "10.0.0.0/24"},
    ]
    nodes = {"a": {"device": "mac-mini-m4", "address": "10.0.0.1"}, "b": {"device": "mac-mini-m4"}}
    shelf = loads({"nodes": nodes, "links": links, "parallel": "address"})

    def facts(source: str) -> MachineFacts:
        return MachineFacts(1, "none", {}, {"10.0.0.1": source}, {}, {source: "en5"})

    assert links_taken(shelf, "b", facts("10.0.0.2")) == ({"a": "a-b#2, en5 (10.0.0.2)"}, [])
    assert links_taken(shelf, "a", facts("10.0.0.2")) == ({}, [])  # a has the lowest rank, so b connects
    # A route over the LAN, or over a network that the topology does not know.
    for source, place in (("192.168.1.2", "a-b#1, en5 (192.168.1.2)"), ("172.16.0.2", "no link of the topology, en5")):
        found, (trouble,) = links_taken(shelf, "b", facts(source))
        assert found["a"].startswith(place)
        assert "not over a-b#2 as in the topology" in trouble.what
        assert "10.0.0.0/24" in trouble.do
    assert facts_here.interfaces()["127.0.0.1"]
