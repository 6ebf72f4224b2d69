"""The command `simcluster serve` with a tiny model: on both backends, with a node killed, and ended by Ctrl-C."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
import torch
import yaml
from safetensors.torch import save_file

from simcluster.lm.digest import ids_sha256
from simcluster.workloads.models.gpt import gpt
from tests.support.levels import sample_of
from tests.support.processes import by_age

SIZES = {"layers": 3, "width": 48, "heads": 6, "context": 2048}
PATIENT = httpx.Timeout(300.0)
PLACED = {"kind": "pipeline", "nodes": {"a": 1, "b": 1, "c": 1}}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run's folder with a seeded GPT on bytes, and a placement of it on three nodes."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    (folder / "checkpoints").mkdir(parents=True)
    torch.manual_seed(3)
    made = gpt(**SIZES).model()  # type: ignore[arg-type]
    (folder / "config.yaml").write_text(yaml.safe_dump({"workload": {"name": "gpt"} | SIZES}))
    save_file(
        {name: one.detach().contiguous() for name, one in made.named_parameters()},
        folder / "checkpoints" / "final.safetensors",
    )
    (folder / "placement.yaml").write_text(yaml.safe_dump(PLACED))
    return folder


def greedy(prompt: bytes, count: int) -> tuple[list[int], list[list[float]]]:
    """Return the likeliest tokens after *prompt*, by the workload's own model, and the log-probabilities at each."""
    torch.manual_seed(3)
    made, tokens, rows = gpt(**SIZES).model(), list(prompt), list[list[float]]()  # type: ignore[arg-type]
    for _ in range(count):
        rows.append(made(torch.tensor([tokens]))[0, -1].log_softmax(-1).tolist())
        tokens.append(max(range(len(rows[-1])), key=rows[-1].__getitem__))
    return tokens[len(prompt) :], rows


class Serving:
    """A running command, and the address that it printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.line = process.stdout.readline()
        found = re.search(r"at (http://\S+)/v1", self.line)
        assert found, self.line + (process.stderr.read() if process.stderr is not None else "")
        self.client = httpx.Client(base_url=found[1], timeout=PATIENT)

    def wait(self) -> None:
        """Return when the model is loaded."""
        while self.client.get("/health").status_code != 200:
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.05)

    def complete(self, **more: object) -> httpx.Response:
        body = {"model": "tiny", "prompt": "hello", "max_tokens": 8, "temperature": 0, **more}
        return self.client.post("/v1/completions", json=body)


@contextmanager
def serving(model: Path, backend: str, *more: str, topology: str = "this-machine") -> Iterator[Serving]:
    command = ("serve", topology, "--model", str(model), "--placement", str(model / "placement.yaml"))
    with subprocess.Popen(
        [sys.executable, "-m", "simcluster", *command, "--backend", backend, "--port", "0", *more],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            found = Serving(process)
            with found.client:
                found.wait()
                yield found
        finally:
            process.kill()


def nodes_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return the processes of the nodes, by rank: children of the process that forks them."""
    children = psutil.Process(process.pid).children()
    return by_age(node for child in children for node in child.children())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "placement"),
    sample_of([("sim", "file"), ("sim", "replicas"), ("sockets", "tensor"), ("sockets", "file")]),
)
def test_every_backend_and_placement_gives_the_same_tokens_and_ends_with_ctrl_c(
    model: Path, backend: str, placement: str
) -> None:
    with serving(model, backend, *(() if placement == "file" else ("--placement", placement))) as found:
        whole = found.complete()
        assert whole.json()["usage"] == {"prompt_tokens": 5, "completion_tokens": 8, "total_tokens": 13}
        digest = json.loads(whole.headers["x-simcluster-timings"])["token_ids_sha256"]
        tokens, rows = greedy(b"hello", 8)
        assert digest == ids_sha256(tokens)
        (choice,) = found.complete(logprobs=1).json()["choices"]
        expected = [row[token] for token, row in zip(tokens, rows, strict=True)]  # the greatest of its row
        assert choice["logprobs"]["token_logprobs"] == pytest.approx(expected, abs=1e-4)
        assert [max(one.values()) for one in choice["logprobs"]["top_logprobs"]] == pytest.approx(expected, abs=1e-4)
        streamed = found.complete(stream=True).text
        assert digest in streamed
        assert streamed.endswith("data: [DONE]\n\n")
        shelf = found.client.get("/shelf").json()
        assert placement != "file" or [(part["node"], part["layers"]) for part in shelf["parts"]] == [
            ("a", [0, 1]), ("b", [1, 2]), ("c", [2, 3])
        ]  # fmt: skip
        assert shelf["chat"] is False
        chat = {"model": "tiny", "messages": [{"role": "user", "content": "x"}]}
        assert found.client.post("/v1/chat/completions", json=chat).status_code == 400
        family = psutil.Process(found.process.pid).children(recursive=True)
        found.process.send_signal(signal.SIGINT)
        _, errors = found.process.communicate()
        assert found.process.returncode == 130
        assert errors.strip() == "interrupted"
        _, left = psutil.wait_procs(family, timeout=60)
        assert left == []


def prefilled(found: Serving) -> float:
    """Return the tokens that went through the model in chunks."""
    return float(re.search(r"^simcluster:prefilled_tokens_total\S+ (\S+)", found.client.get("/metrics").text, re.M)[1])


TRIES = 5
"""An answer may be through before a node is killed, whatever the client has read of it."""


def _streamed_past_a_kill(found: Serving, place: int) -> str:
    """Return the text of a stream during which the node at *place* of the shelf is killed."""
    rank = "abc".index(found.client.get("/shelf").json()["parts"][place]["node"])
    body = {"model": "tiny", "prompt": "hello", "max_tokens": 120, "temperature": 0, "stream": True}
    with found.client.stream("POST", "/v1/completions", json=body) as answer:
        lines = answer.iter_lines()
        text = next(lines)
        nodes_of(found.process)[rank].kill()
        text += "\n".join(lines)
    assert "error" not in text
    assert text.rstrip().endswith("data: [DONE]")
    chunks = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: {")]
    return "".join(chunk["choices"][0]["text"] for chunk in chunks if chunk["choices"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("placement", "place"), sample_of([("file", 1), ("file", 0), ("file", 2), ("replicas", 0), ("replicas", 1)])
)
def test_a_stream_goes_on_with_the_same_tokens_when_a_node_is_killed_in_it(
    model: Path, placement: str, place: int
) -> None:
    again = 0.0
    for _ in range(TRIES):
        with serving(model, "sockets", *(() if placement == "file" else ("--placement", placement))) as found:
            expected = found.complete(max_tokens=120).json()["choices"][0]["text"]
            before = prefilled(found)
            assert _streamed_past_a_kill(found, place) == expected
            again = prefilled(found) - before
            # The node is started again, and joins the others: three are there for the next answer.
            while len(nodes_of(found.process)) < 3:
                time.sleep(0.05)
            assert found.complete(max_tokens=120).json()["choices"][0]["text"] == expected
        # The first replica has the request: 5 tokens of the prompt, and more again unless the answer was through.
        if placement == "file" or again > 5 or place == 1:
            break
    if placement == "replicas":
        assert again > 5 if place == 0 else again == 5


SMALL = {
    "name": "small",
    "nodes": {name: {"flops": "10 GFLOP/s", "memory": "250 kB"} for name in "abc"},
    "links": [{"between": pair, "type": "loopback"} for pair in (["a", "b"], ["a", "c"], ["b", "c"])],
}


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "name"), sample_of([(0, "a"), (1, "b")], 2))
def test_a_node_that_the_model_needs_is_named_when_it_is_killed_and_the_server_serves_again(
    model: Path, tmp_path: Path, rank: int, name: str
) -> None:
    """A layer takes 111 kB, so of three nodes each has room for one of the three."""
    cluster = tmp_path / "small.yaml"
    cluster.write_text(yaml.safe_dump(SMALL))
    with serving(model, "sockets", topology=str(cluster)) as found:
        before = found.complete()
        body = {"model": "tiny", "prompt": "hello", "max_tokens": 200, "stream": True}
        with found.client.stream("POST", "/v1/completions", json=body) as answer:
            pieces = answer.iter_text()
            text = next(pieces)
            nodes_of(found.process)[rank].kill()
            text += "".join(pieces)
        error, done = text.strip().split("\n\n")[-2:]
        assert done == "data: [DONE]"
        assert f"{name}) is lost" in error or f"{name} is lost" in error
        assert json.loads(error.removeprefix("data: "))["error"]["type"] == "unavailable_error"
        found.wait()
        assert found.complete().json()["choices"] == before.json()["choices"]


@pytest.mark.slow
def test_a_server_that_may_not_restart_serves_on_fewer_nodes_and_ends_without_any(model: Path) -> None:
    with serving(model, "sockets", "--restarts", "0") as found:
        before = found.complete().json()["choices"]
        first, second, third = nodes_of(found.process)
        second.kill()
        found.wait()
        assert found.complete().json()["choices"] == before
        shelf = found.client.get("/shelf").json()  # whichever of the two has two layers
        assert [part["node"] for part in shelf["parts"]] == ["a", "c"]
        assert sum(last - first for first, last in (part["layers"] for part in shelf["parts"])) == 3
        assert [one["node"] for one in shelf["lost"]] == ["b"]
        for node in (first, third):
            node.kill()
        _, errors = found.process.communicate()
        assert found.process.returncode == 1
        assert re.search(r"^b is lost: .*; pipeline on a, c$", errors, re.MULTILINE)
        assert "error: PeerLost: rank " in errors
