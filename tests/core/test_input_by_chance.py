"""An experiment with anything anywhere, and files that strangers have: read, or refused with a typed error."""

from __future__ import annotations

import copy
import json
import random
import resource
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import networkx
import pytest

from simcluster import topology
from simcluster.documents.yaml import parse_value
from simcluster.errors import SimclusterError, UsageError
from simcluster.experiment.read.read import read_experiment
from simcluster.lm.load.trace import read_trace
from simcluster.lm.models.open import open_model
from simcluster.overlays.setting import overlay_of
from tests.support.levels import sample_of
from tools.damage import places

VALUES = (
    *(
        "0",
        "-1",
        "1e23",
        "9" * 900,
        "0x" + "f" * 800,
        "1e308",
        "1e-320",
        ".nan",
        ".inf",
        "true",
        "null",
        "''",
        "[]",
        "{}",
    ),
    *(
        "[[[[]]]]",
        "{a: {b: {}}}",
        "x" * 100_000,
        "1e-320 Gbps",
        "1e300 Tbps",
        "1e30 h",
        "-0 s",
        "1e-18 s",
        '"\\e[31m\\0"',
    ),
    *("1000000000", "1e18 GB", "/etc/passwd", "'/etc/passwd:f'", "[1, 2]", "ünï", "1 s", "1 Gbps", "4294967296"),
    "[{kind: flap, link: n1-sw, at: 0 s, for: 1e30 h, period: 1e-18 s}]",
    "[{kind: hang, node: n1, at: 1e30 h, for: 1e-18 s, every: 1e-18 s, times: 10000}]",
)
WHOLE: dict[str, Any] = {
    "topology": {
        "name": "t",
        "nodes": {
            "n0": {
                "device": "raspberry-pi-4",
                "profile": {"mnist_mlp/gradient": "1 ms"},
                "send_overhead": "1 us",
                "straggler": {"kind": "markov", "factor": 2, "slow": "10 ms", "fast": "10 ms"},
            },
            "n1": {"flops": "1 GFLOP/s", "memory": "1 GB"},
            "sw": {"kind": "switch"},
        },
        "links": [
            {"between": ["n0", "sw"], "bandwidth": "1 Mbps", "latency": "1 ms"},
            {"between": ["n1", "sw"], "type": "gigabit-ethernet"},
        ],
    },
    "algorithm": {"name": "edp", "pull_interval": 2},
    "workload": {"name": "quadratic", "features": 10},
    "seed": 1,
    "stop": {"steps": 5},
    "evaluate_every": 10,
    "faults": [{"kind": "crash", "node": "n1", "at": "1 ms"}],
    "checkpoint": {"every": 3, "keep": 2},
}
GENERATED = {"generator": "torus", "rows": 2, "columns": 2, "bandwidth": "1 Gbps", "latency": "1 us"}


@pytest.mark.parametrize("seed", range(4))
def test_an_experiment_with_anything_anywhere_is_read_or_refused_with_a_typed_error(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        document = copy.deepcopy(WHOLE)
        if rng.random() < 0.3:
            document |= {"topology": dict(GENERATED), "faults": []}
        place, key = rng.choice(places(document))
        place[key] = _value(rng.choice(VALUES))
        with suppress(SimclusterError):
            read_experiment(document)


def _value(text: str) -> Any:
    try:
        return parse_value(text)
    except UsageError:
        return text


MOST_MORE_KB = 600_000
"""Memory that reading a small file may take."""
GRAPHS: tuple[Callable[[], Any], ...] = (
    lambda: networkx.empty_graph(0), lambda: networkx.empty_graph(3), lambda: networkx.path_graph(4),
    lambda: networkx.grid_2d_graph(2, 3), lambda: networkx.karate_club_graph(), lambda: networkx.les_miserables_graph(),
    lambda: networkx.florentine_families_graph(), lambda: networkx.barbell_graph(3, 1), lambda: networkx.star_graph(5),
    lambda: networkx.random_geometric_graph(6, 0.8, seed=1), lambda: networkx.gn_graph(5, seed=1),
    lambda: networkx.MultiGraph([(0, 1), (0, 1)]), lambda: networkx.MultiDiGraph([("a", "b"), ("b", "a")]),
    lambda: networkx.Graph([(1, 1), (1, 2)]),
    lambda: networkx.Graph([("São Paulo", "New York, NY"), ("New York, NY", "x/y")]),
    lambda: networkx.Graph([(1, "1"), ("1", 2.0), (2.0, (2, 0))]),
)  # fmt: skip
KEYS = (
    "device",
    "flops",
    "memory",
    "kind",
    "weight",
    "capacity",
    "bandwidth",
    "latency",
    "Latitude",
    "label",
    "x y",
    "id",
)
ODD: tuple[Any, ...] = (
    0, -1, 2**70, 1e400, float("nan"), True, None, "", "1 Gbps", "1 ms", "raspberry-pi-5", "switch", "x" * 5000,
    "\u202e\x1b[31m", [1], {"a": {"b": 1}}, (1, 2), {1, 2}, b"a", object, 3 + 4j,
)  # fmt: skip
CONFIG: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 16, "vocab_size": 32,
    "torch_dtype": "bfloat16", "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "max_position_embeddings": 64,
}  # fmt: skip
FAMILIES: tuple[dict[str, Any], ...] = (
    {}, {"model_type": "qwen2"}, {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    {"model_type": "gpt2", "n_embd": 8, "n_layer": 2, "n_head": 2}, {"model_type": "bert"}, {"model_type": None},
    {"rope_scaling": {"rope_type": "llama3", "factor": 8}}, {"quantization": {"bits": 4, "group_size": 64}},
    {"quantization_config": {"quant_method": "fp8"}}, {"quantization_config": {"bits": 4, "quant_method": "awq"}},
    {"text_config": {"hidden_size": 8}}, {"model_type": "deepseek_v3", "n_routed_experts": 8},
)  # fmt: skip
NUMBERS: tuple[Any, ...] = (0, -1, 7, 10**6, 2**31 - 1, 2**62, 10**400, 1.5, "8", None, [], {}, True, "x" * 5000)
KINDS = {4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 12: "<d"}
"""Numbers in a GGUF file, by type."""
TRACES = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n0,m,5,5,10,API log\n1,m,6,7,13,API log\n",
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9,396,109\n",
    '{"timestamp": 0, "input_length": 655, "output_length": 52}\n{"timestamp": 1053, "input_length": 6}\n',
    '[{"t": 0}]', "", "time_s,bandwidth\n0,1 Mbps\n2,3 Mbps\n", "0.0\t1.5\n1.0\t0.8\n", "0\n1\n1\n", "a;b;c\n1;2;3\n",
)  # fmt: skip
NOISE = ("-1", "1e400", "nan", "", '"', "\x00", "\ufeff", "9" * 500, ",", "\r", "\n\n", "{", "ü", "2023-13-45", "1,5")


@contextmanager
def refused_or_read() -> Iterator[None]:
    """Let typed refusals pass, and fail if what was read took much memory."""
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with suppress(SimclusterError):
        yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < MOST_MORE_KB


@pytest.mark.parametrize("number", range(len(GRAPHS)))
def test_a_graph_of_networkx_with_any_attributes_is_a_topology_and_an_overlay_or_refused(number: int) -> None:
    rng = random.Random(number)
    for turn in range(8):
        graph = GRAPHS[number]()
        for _ in range(rng.randint(0, 4) if turn else 0):
            (key, value), nodes, edges = (rng.choice(KEYS), rng.choice(ODD)), list(graph), list(graph.edges)
            where = rng.choice(["graph", *["node"] * bool(nodes), *["edge"] * bool(edges)])
            owner = graph.graph if where == "graph" else None
            owner = graph.nodes[rng.choice(nodes)] if where == "node" else owner
            owner = graph.edges[rng.choice(edges)] if where == "edge" else owner
            owner[key] = value
        with refused_or_read():
            topology.load(graph)
        with refused_or_read():
            overlay_of(graph, max(len(graph), 1), 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", sample_of(range(3)))
def test_a_configuration_of_any_model_family_is_planned_for_or_refused(seed: int, tmp_path: Path, command: Any) -> None:
    rng = random.Random(seed)
    for turn in range(10):
        config = CONFIG | rng.choice(FAMILIES)
        for _ in range(rng.randint(0, 2) if turn else 0):
            config[rng.choice(sorted(config))] = rng.choice(NUMBERS)
        folder = tmp_path / str(turn)
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        _planned(folder, command)


@pytest.mark.slow
@pytest.mark.parametrize("seed", sample_of(range(3)))
def test_a_gguf_file_with_any_metadata_is_planned_for_or_refused(seed: int, tmp_path: Path, command: Any) -> None:
    rng = random.Random(seed)
    for turn in range(10):
        kind = rng.choice(["llama", "qwen2", "gemma3", "llama4", ""])
        names = ("block_count", "embedding_length", "attention.head_count", "feed_forward_length", "expert_count")
        entries = [_text("general.architecture") + struct.pack("<I", 8) + _text(kind)]
        for name in names[: rng.randint(0, 5)]:
            type_ = rng.choice(sorted(KINDS))
            value = struct.pack(KINDS[type_], rng.choice([0, 1, 2, 8]))
            entries.append(_text(f"{kind}.{name}") + struct.pack("<I", type_) + value)
        entries.append(_text("tokens") + struct.pack("<IIQ", 9, 8, rng.choice([0, 2**20, 2**62])))
        body = b"GGUF" + struct.pack("<IQQ", 3, rng.choice([0, 0, 1, 2**40]), len(entries)) + b"".join(entries)
        file = tmp_path / f"{turn}.gguf"
        file.write_bytes(body[: rng.randint(4, len(body))] if rng.random() < 0.3 else body)
        _planned(file, command)


@pytest.mark.parametrize("seed", range(3))
def test_a_trace_of_requests_or_of_bandwidth_is_read_or_refused(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    ends = {name: {"device": "raspberry-pi-5"} for name in "ab"}
    for turn in range(30):
        text = rng.choice(TRACES)
        for _ in range(rng.randint(0, 3)):
            place = rng.randint(0, len(text))
            text = text[:place] + rng.choice(NOISE) + text[place + rng.randint(0, 3) :]
        file = tmp_path / f"{turn}.csv"
        file.write_text(text, encoding="utf-8", newline="")
        with refused_or_read():
            read_trace(file)
        link = {"between": ["a", "b"], "bandwidth": "1 Mbps", "latency": "1 ms", "trace": {"file": str(file)}}
        with refused_or_read():
            topology.load({"nodes": ends, "links": [link]})


def _text(words: str) -> bytes:
    return struct.pack("<Q", len(words)) + words.encode()


def _planned(model: Path, command: Any) -> None:
    """Plan for *model*, and open it: a result, or a sentence and exit code 2."""
    code, out, err = command("plan", "thunderbolt-mesh-4", "--model", str(model))
    assert (code, bool(out)) == (0, True) or (code == 2 and err.startswith("error")), (code, err)
    assert len(err) < 4000
    with refused_or_read():
        open_model(str(model))
