"""Traces of links in the forms that people have: mahimahi, Pensieve, and anyone's columns."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
import yaml

from simcluster.errors import UsageError
from simcluster.topology import Topology, load, loads

PAIR = (
    "nodes: {{a: {{flops: 1 GFLOP/s}}, b: {{flops: 1 GFLOP/s}}}}\n"
    "links: [{{between: [a, b], bandwidth: 10 Mbps, latency: 10 ms, {key}: {{file: f.txt{more}}}}}]\n"
)


def read(folder: Path, text: str, more: str = "", key: str = "trace") -> Topology:
    (folder / "f.txt").write_text(text)
    (folder / "t.yaml").write_text(PAIR.format(key=key, more=more))
    return load(folder / "t.yaml")


def refused(folder: Path, text: str, more: str = "", key: str = "trace") -> str:
    with pytest.raises(UsageError) as error:
        read(folder, text, more, key)
    return str(error.value).replace(f"{folder}/", "")


def test_pensieve_is_recognised_and_the_summary_says_so(tmp_path: Path) -> None:
    topology = read(tmp_path, "5.0\t1.5\n6.0 0.8\n7.0\t3.2\n")  # times count from the first row
    trace = topology.links[0].trace
    assert trace is not None
    assert trace.steps == ((0.0, 187_500.0), (1.0, 100_000.0), (2.0, 400_000.0))
    assert trace.period_s == math.inf
    words = "800 kbps to 3.2 Mbps in 3 steps (f.txt: Pensieve's form, seconds and Mbps)"
    assert topology.links[0].conditions == [words]
    assert loads(yaml.safe_dump(topology.document)) == topology, "it travels in the document"


def test_mahimahi_has_exactly_the_bytes_of_each_window_and_repeats(tmp_path: Path) -> None:
    # Windows of 100 ms end at 100, 200, 300 and, as the trace does, at 350 ms: they have 3, 0, 1 and 1 packets.
    trace = read(tmp_path, "0\n1\n100\n201\n350\n").links[0].trace
    assert trace is not None
    assert trace.period_s == 0.35
    assert trace.steps == ((0.0, 3 * 1500 / 0.1), (0.1, 0.0), (0.2, 1500 / 0.1), (0.3, 1500 / 0.05))
    # 10,000 windows of 200 ms, each but the last with the same rate; and 5 packets in all of 5 ms
    long = read(tmp_path, "".join(f"{ms}\n" for ms in range(200, 2_000_001, 200))).links[0].trace
    assert long is not None
    assert (long.steps, long.period_s) == (((0.0, 1500 / 0.2),), 2000.0)
    short = read(tmp_path, "0\n1\n1\n3\n5\n", ", format: mahimahi").links[0].trace
    assert short is not None
    assert short.steps == ((0.0, 5 * 1500 / 5e-3),)


@pytest.mark.parametrize(
    ("text", "more", "key", "steps"),
    [
        (
            "Timestamp,RSRP,DL_bitrate\n1480000000.5,-90,100\n1480000002,-80,50\n",
            ", format: {time_s: Timestamp, bandwidth_kbps: DL_bitrate}",
            "trace",
            ((0.0, 12_500.0), (1.5, 6_250.0)),
        ),
        ("time_ms bandwidth_Mbps\n100 5\n350 0\n", "", "trace", ((0.0, 625_000.0), (0.25, 0.0))),
        ("time_s,latency\n0,10 ms\n2, 80 ms\n", "", "latency_trace", ((0.0, 0.01), (2.0, 0.08))),
        ("time_s;factor\n0;1\n2;8\n", "", "latency_trace", ((0.0, 0.01), (2.0, 0.08))),
    ],
)
def test_columns_have_any_name_unit_and_separator(
    text: str, more: str, key: str, steps: tuple[tuple[float, float], ...], tmp_path: Path
) -> None:
    assert getattr(read(tmp_path, text, more, key).links[0], key).steps == steps


@pytest.mark.parametrize(
    ("text", "more", "problem"),
    [
        ("1.0,2\n", "", "f.txt:1: trace: found '1.0,2', expected the line time_s,factor or"),
        ("", "", "f.txt: trace: found ''"),
        ("0 1\n2 -1\n", "", "f.txt:2: trace: found '2 -1', expected a bandwidth"),
        ("0 1\n2 nan\n", "", "f.txt:2: trace: found '2 nan'"),
        ("0 1\n2 1\n1 1\n", "", "f.txt:3: trace: found '1 1', expected a time after 2 s"),
        ("5\n3\n", "", "f.txt:2: trace: found '3', expected a whole number of milliseconds, at least 5"),
        ("0\n", "", "f.txt: trace: found a trace of 0 ms, expected a last row above 0 ms"),
        ("1\n", ", period: 1 s", "trace.period: found '1 s', expected none"),
        ("1\n", ", format: mahi", "trace.format: found 'mahi', expected columns, pensieve, mahimahi"),
        ("t,x\n0,1\n", ", format: {time_s: t, bandwith: x}", "unknown column; did you mean 'bandwidth'?"),
        ("t,x\n0,1\n", ", format: {time_s: t, bandwidth_Mbps: y}", "f.txt:1: trace: found 't,x'"),
    ],
)
def test_a_wrong_trace_is_one_problem(text: str, more: str, problem: str, tmp_path: Path) -> None:
    said = refused(tmp_path, text, more)
    assert len(said.splitlines()) == 1
    assert problem in said


CLIENTS = "clients: {file: f.txt, count: 1, work_per_sample: 1 FLOP, to: a, latency: 1 ms}\n"


@pytest.mark.parametrize("text", [PAIR.format(key="trace", more=""), CLIENTS])
def test_a_pipe_as_a_trace_or_as_clients_is_refused_at_once(text: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "f.txt")
    (tmp_path / "t.yaml").write_text(text)
    with pytest.raises(UsageError, match=r"f\.txt: file: found a pipe, expected the path of a file"):
        load(tmp_path / "t.yaml")


def test_the_same_slip_is_told_ten_times(tmp_path: Path) -> None:
    lines = refused(tmp_path, "1\n" + "x\n" * 100).splitlines()
    assert len(lines) == 12  # ten, their rest in one line, and the count of those that are not listed
    assert "80 more wrong rows" in lines[-1]
