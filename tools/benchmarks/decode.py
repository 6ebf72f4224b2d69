"""`python -m tools.benchmarks.decode`: the speed of the engine relative to a loop with transformers.

Both sides decode with SmolLM2's weights, on one core. The loop is transformers' own model with its
own cache, and takes the token with the highest score. docs/inference.md has the ratios. With
`--llama N`, llama.cpp is compared instead, on N threads, with files that it has made of the model.
"""

from __future__ import annotations

import argparse
import logging
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from simcluster.compute import HOST
from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.engine.stage import StageModel
from simcluster.lm.formats import FORMATS, Precision
from simcluster.lm.models.model_share import ModelShare, SequencePart
from simcluster.lm.models.open import open_model
from simcluster.lm.other_engines.choice import other_model
from simcluster.process.intra_op import use_one_thread
from tools.benchmarks.timing import Work, compare, cpu_s, wall_s

CONTEXT = 256
TOKENS = 8
PROMPT = 512
LLAMA_ROUNDS = 5
LLAMA_FILES: tuple[tuple[str, int, Precision], ...] = (("F32", 0, "f32"), ("Q4_0", 2, "q4"))
"""Formats of llama.cpp's files, their codes in its quantiser, and the formats of this engine."""


def plain_model(share: ModelShare) -> Any:
    """Return transformers' whole model with the weights of *share*."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(share.config, attn_implementation="sdpa", dtype=torch.float32)
    model.load_state_dict(share.state(), assign=True)
    model.tie_weights()
    return model.eval()


def plain_decoding(model: Any) -> Work:
    """Return a function that decodes TOKENS tokens after CONTEXT tokens."""
    from transformers import DynamicCache

    with torch.inference_mode():
        start = DynamicCache(config=model.config)
        model(input_ids=torch.arange(CONTEXT)[None], cache=start, use_cache=True)

    @torch.inference_mode()
    def work() -> None:
        token = torch.tensor([[0]])
        for _ in range(TOKENS):
            token = model(input_ids=token, cache=start, use_cache=True).logits.argmax(-1)
        start.crop(-TOKENS)

    return work


def decoding(share: StageModel, sequences: int) -> Work:
    """Return a function that decodes TOKENS tokens for each of *sequences* after CONTEXT tokens."""
    caches = [share.cache(CONTEXT + TOKENS) for _ in range(sequences)]
    for cache in caches:
        share.forward([SequencePart(cache, torch.arange(CONTEXT))], last=[1])

    def work() -> None:
        for cache in caches:
            cache.length = CONTEXT
        tokens = [torch.tensor([0])] * sequences
        for _ in range(TOKENS):
            found = share.forward([SequencePart(*pair) for pair in zip(caches, tokens, strict=True)])
            tokens = [one.argmax(-1) for one in found]

    return work


def prefilling(share: StageModel) -> Work:
    """Return a function that computes a prompt of PROMPT tokens."""
    return lambda: share.forward([SequencePart(share.cache(PROMPT), torch.arange(PROMPT))], last=[1])


def compare_llama(model: str, threads: int) -> None:
    """Print the speeds of the engine relative to llama.cpp's, in f32 and in 4 bits, on *threads*."""
    import llama_cpp

    logging.getLogger("llama-cpp-python").setLevel(logging.CRITICAL)  # it prints a line for each tensor
    torch.set_num_threads(threads)
    clock = cpu_s if threads == 1 else wall_s
    limits = EngineLimits(2 * PROMPT // 16, PROMPT, 0, chunk_tokens=PROMPT, running=4)
    for kind, code, precision in LLAMA_FILES:
        with TemporaryDirectory() as folder:
            path = Path(folder) / f"{kind}.gguf"
            params = llama_cpp.llama_model_quantize_default_params()
            params.ftype, params.allow_requantize = code, True
            whole = str(open_model(model).path).encode()
            if llama_cpp.llama_model_quantize(whole, str(path).encode(), params) != 0:
                raise SystemExit(f"llama.cpp cannot write {kind}")
            file = open_model(str(path))
            ours = file.share(0, file.shape.layers, precision)
            theirs = other_model("llama.cpp", file, limits, HOST)
            for name, work in (("decode", partial(decoding, sequences=1)), ("prompt", prefilling)):
                found = compare(work(ours), work(theirs), LLAMA_ROUNDS, clock)
                print(f"{kind}, {name}, {threads} threads: {1 / found.ratio:.2f} times the tokens/s of llama.cpp")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2", help="A name or path, as for `generate`.")
    parser.add_argument("--formats", nargs="*", default=list(FORMATS)[1:], help="Formats to compare with f32.")
    parser.add_argument("--llama", type=int, metavar="N", help="Compare with llama.cpp on N threads.")
    given = parser.parse_args()
    if given.llama:
        compare_llama(given.model, given.llama)
        return
    use_one_thread()
    file = open_model(given.model)
    share = file.share(0, file.shape.layers)
    plain = plain_model(share)

    @torch.inference_mode()
    def plain_prompt() -> None:
        plain(input_ids=torch.arange(PROMPT)[None], use_cache=True, logits_to_keep=1)

    found = compare(decoding(share, 1), plain_decoding(plain))
    ours_ms, theirs_ms = found.a_s / TOKENS * 1e3, found.b_s / TOKENS * 1e3
    print(f"a token: {ours_ms:.1f} ms, transformers {theirs_ms:.1f} ms; {found.ratio:.2f} times")
    found = compare(prefilling(share), plain_prompt)
    print(f"a prompt of {PROMPT}: {found.a_s:.2f} s, transformers {found.b_s:.2f} s; {found.ratio:.2f} times")
    for sequences in (2, 4, 8, 16):
        found = compare(decoding(share, sequences), decoding(share, 1))
        print(f"{sequences} sequences: {sequences / found.ratio:.2f} times the tokens/s of one")
    for precision in given.formats:
        other = file.share(0, file.shape.layers, precision)
        for sequences in (1, 8):
            found = compare(decoding(other, sequences), decoding(share, sequences))
            print(f"{precision}, {sequences} at once: {1 / found.ratio:.2f} times the speed of f32")


if __name__ == "__main__":
    main()
