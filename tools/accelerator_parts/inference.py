"""`simcluster generate` on the device, against a plain loop over transformers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from simcluster.compute import synchronise
from simcluster.process.intra_op import usable_cores
from tools.accelerator_parts.children import end
from tools.accelerator_parts.context import PartContext
from tools.accelerator_parts.random_model import ONE_BILLION, SMALL, make
from tools.accelerator_parts.rows import Skipped, measured

PROMPT = "The quick brown fox jumps over the lazy dog, and the dog sleeps. "
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
EXACT = "f32"
"""The format in which both loops must choose the same tokens; in others, ties are broken by rounding."""

POLL_S = 0.1
LIMIT_S = 35.0
"""The most seconds that one `generate` may take, so that the other format has its turn."""


class Decoded(NamedTuple):
    """The *tokens* that a loop chose, and the mean time per token after the first."""

    tokens: list[int]
    token_s: float

    @property
    def per_s(self) -> str:
        return f"{1 / self.token_s:.1f}"


def generate(at: PartContext) -> None:
    """Make a model of random weights; decode with both loops in each format."""
    model = at.folder / "model"
    size, count = (SMALL, 64) if at.device == "cpu" else (ONE_BILLION, 128)
    size_bytes = 0
    with measured(at.table, "random model", "GB in bf16") as row:
        size_bytes = make(model, size, at.device)
        row.value = f"{size_bytes / 1e9:.3f}"
    for weights in TYPES:
        ours = theirs = None
        with measured(at.table, f"transformers {weights}", "tokens/s") as row:
            if not size_bytes:
                raise Skipped("no model")
            theirs = plain(model, weights, count, at.device)
            row.value = theirs.per_s
        with measured(at.table, f"generate {weights}", "tokens/s") as row:
            if not size_bytes:
                raise Skipped("no model")
            ours, row.why = simclusters(model, weights, count, size_bytes, at)
            row.value = ours.per_s
        if ours is not None and theirs is not None:
            compare(weights, ours, theirs, at.table)


def compare(weights: str, ours: Decoded, theirs: Decoded, table: Path) -> None:
    """Append the ratio of the times, and the number of equal tokens before the first other one."""
    with measured(table, f"token time {weights}", "simcluster/loop") as row:
        row.value = f"{ours.token_s / theirs.token_s:.3f}"
    with measured(table, f"same tokens {weights}", f"of {len(theirs.tokens)}") as row:
        pairs = enumerate(zip(ours.tokens, theirs.tokens, strict=True))
        same = next((place for place, (one, other) in pairs if one != other), len(theirs.tokens))
        row.value = str(same)
        row.why = f"{len(set(theirs.tokens))} different tokens"
        if same < len(theirs.tokens) and weights == EXACT:
            raise AssertionError(f"token {same} of {len(theirs.tokens)} differs in {weights}")


def simclusters(model: Path, weights: str, count: int, size_bytes: int, at: PartContext) -> tuple[Decoded, str]:
    """Decode *count* tokens with `simcluster generate` on one node; return them with remarks.

    Raise Skipped if the command refuses. *size_bytes* is the model's size in 16 bits: if the card's
    memory does not grow by that, the node did not compute there.
    """
    topology = at.folder / "one.yaml"
    topology.write_text(json.dumps({"name": "one", "nodes": {"a": node_on(at.device)}, "links": []}))
    words = ["generate", str(topology), "--model", str(model), "--prompt", PROMPT, "--raw", "--placement", "alone"]
    words += ["--backend", "sockets", "--max-tokens", str(count), "--weights", weights, "--json"]
    code, out, err, grown_bytes = run_watched([sys.executable, "-m", "simcluster", *words], at)
    last = (err.strip().splitlines() or [f"exit code {code}"])[-1]
    if code == 2:
        raise Skipped(f"refused: {last}")
    if code:
        raise RuntimeError(last)
    if at.device == "cuda" and grown_bytes < size_bytes:
        raise AssertionError(f"the card's memory grew by {grown_bytes:,} bytes, less than the weights in 16 bits")
    found = json.loads(out)
    remarks = "" if at.device != "cuda" else f"{grown_bytes / 1e9:.2f} GB on the card"
    return Decoded(found["token_ids"], found["tpot_s"]), remarks


def node_on(device: str) -> dict[str, Any]:
    """Return a node that computes on *device*. Its rates only decide predictions."""
    rates = {"flops": "50 GFLOP/s", "memory_bandwidth": "20 GB/s", "operator_overhead": "30 us", "memory": "64 GB"}
    node: dict[str, Any] = {**rates, "compute": device}
    if device != "cpu":
        fast = {"flops": "60 TFLOP/s", "memory_bandwidth": "3 TB/s", "operator_overhead": "5 us", "memory": "70 GB"}
        node["accelerator"] = {"kind": device, **fast}
    return node


def run_watched(words: Sequence[str], at: PartContext) -> tuple[int, str, str, int]:
    """Run *words*; return the exit code, both outputs, and by how much the card's memory grew."""
    start_s = time.monotonic()
    outputs = [at.folder / "out", at.folder / "err"]
    before_bytes = most_bytes = used_bytes(at.device)
    with outputs[0].open("w") as out, outputs[1].open("w") as err:
        process = subprocess.Popen(words, stdout=out, stderr=err, start_new_session=True)
        try:
            while process.poll() is None:
                if time.monotonic() - start_s > LIMIT_S:
                    raise TimeoutError(f"not done after {LIMIT_S:g} s")
                most_bytes = max(most_bytes, used_bytes(at.device))
                time.sleep(POLL_S)
        finally:
            end(process)
    return process.returncode, outputs[0].read_text(), outputs[1].read_text(), most_bytes - before_bytes


def used_bytes(device: str) -> int:
    """Return how much of the card's memory all processes use; 0 if there is no card."""
    if device != "cuda":
        return 0
    free_bytes, all_bytes = torch.cuda.mem_get_info()
    return all_bytes - free_bytes


def plain(model: Path, weights: str, count: int, device: str) -> Decoded:
    """Decode *count* tokens greedily with transformers and its cache, one token a pass."""
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM

    place = torch.device(device)
    if device == "cpu":
        torch.set_num_threads(usable_cores())  # as many as a node alone on its machine has
    decoder: Any = AutoModelForCausalLM.from_pretrained(model, dtype=TYPES[weights])
    decoder.to(place)
    prompt = torch.tensor([Tokenizer.from_file(str(model / "tokenizer.json")).encode(PROMPT).ids], device=place)
    decode(decoder, prompt, 8)  # the first passes load kernels
    return decode(decoder, prompt, count)


@torch.inference_mode()
def decode(decoder: Any, prompt: torch.Tensor, count: int) -> Decoded:
    """Return *count* tokens after *prompt*, with the time from the first to the last."""
    found = decoder(input_ids=prompt, use_cache=True)
    tokens = [found.logits[:, -1:].argmax(-1)]
    synchronise(prompt.device)
    start_s = time.perf_counter()
    for _ in range(count - 1):
        found = decoder(input_ids=tokens[-1], past_key_values=found.past_key_values, use_cache=True)
        tokens.append(found.logits[:, -1:].argmax(-1))
    synchronise(prompt.device)
    token_s = (time.perf_counter() - start_s) / (count - 1)
    return Decoded(torch.cat(tokens, 1)[0].tolist(), token_s)
