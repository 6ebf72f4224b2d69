"""The laws of the programs that serve a model: `generate`, `generate_tensor`, `serve_replicas`.

Tokens are checked with a small seeded GPT, with greedy and sampled requests that arrive close
together. Times and bytes are checked with a shape without weights, on a star of equal devices. The
oracles are the whole model in one process, without a scheduler, and the closed forms of the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from math import isclose
from pathlib import Path
from typing import Any

from simcluster.errors import Problem, raise_all
from simcluster.lab.verify.probe import TENSOR_BYTES
from simcluster.lab.verify.served.page import (
    BLOCK_TOKENS,
    LAYERS,
    OUTPUT,
    PAGES,
    PROMPT,
    SHAPE,
    SIZES,
    Page,
    shelf,
    tokens_of,
)
from simcluster.lab.verify.verdict import Check, NotClaimed, Verification, expect, judged, listed
from simcluster.lm.plan.times import TOKEN_BYTES, exchanged_bytes
from simcluster.lm.serving.predicted_latency import LatencyPredictor
from simcluster.lm.serving.run import ServingResult
from simcluster.runs.answer_rows import EndRecord, TokenRecord


def _differing(page: Page, found: ServingResult) -> str:
    wrong = [name for name, tokens in tokens_of(found).items() if tokens != page.expected[name]]
    return f"other tokens than one process for request {listed(wrong)}" if wrong else ""


def one_process(page: Page) -> str:
    """Check that each of the requests served together gets the tokens that it gets alone.

    One process computes the tokens of a request alone.
    """
    for size in page.sizes:
        wrong = _differing(page, page.answers(size))
        expect(not wrong, f"N = {size}: {wrong}")
    told = f"{len(page.requests)} requests at once, greedy and drawn, get the tokens of each alone"
    return f"N = {listed(page.sizes)}: {told}"


def backends(page: Page) -> str:
    """Check that real processes give the expected tokens, as the simulator does."""
    if "sockets" not in page.backends:
        raise NotClaimed("not asked for: needs both backends")
    wrong = _differing(page, page.answers(page.middle, "sockets"))
    return expect(not wrong, wrong or f"N = {page.middle}: real processes give the simulator's tokens")


def determinism(page: Page) -> str:
    """Check that a second run has the same trace and answers."""
    first, second = page.answers(page.middle), page.answered_again(page.middle)
    same = first.record.trace_sha256 == second.record.trace_sha256 and first.answers == second.answers
    return expect(
        same, f"two runs give {'one trace' if same else 'different traces'}, {first.record.trace_sha256[:12]}"
    )


def answered(page: Page) -> str:
    """Check that every token, and the end of every answer, is reported once."""
    for size in page.sizes:
        nodes = page.answers(size).record.nodes
        for one in page.requests:
            rows = [row for node in nodes for row in node.answers if row.request == one.id]
            tokens = sorted(row.number for row in rows if isinstance(row, TokenRecord))
            ends = [row.tokens for row in rows if isinstance(row, EndRecord)]
            expect(
                tokens == list(range(1, one.max_tokens + 1)) and ends == [one.max_tokens],
                f"N = {size}: request {one.id} of {one.max_tokens} tokens was told {tokens}, and ends at {ends}",
            )
    return f"N = {listed(page.sizes)}: every token and every end is told once"


def little_cache(page: Page) -> str:
    """Check the tokens with a cache that holds only the largest request: others are preempted."""
    largest = max(len(one.prompt) + one.max_tokens for one in page.requests)
    blocks = -(-largest // BLOCK_TOKENS)
    size = page.sizes[0]
    found = page.answers(size, blocks=blocks)
    wrong = _differing(page, found)
    told = f"in {blocks} blocks, where requests lost theirs {found.preemptions} times, the tokens are the same"
    return expect(not wrong, f"N = {size}: {wrong or told}")


def guesses(page: Page) -> str:
    """Check that speculative decoding changes no token."""
    found = page.answered_again(page.middle, guesses=3)
    right, wrong = f"with {found.accepted} of {found.proposed} guesses right", _differing(page, found)
    return expect(not wrong, f"N = {page.middle}, {right}: {wrong or 'the same tokens'}")


def cache_bytes(page: Page) -> str:
    """Check that all nodes' caches together have the size of one cache for the whole model."""
    tokens = PROMPT + OUTPUT - 1  # The last token is never an input to the model.
    whole = SHAPE.cache_bytes(LAYERS, tokens)
    for size in page.sizes:
        held = [use.cache_bytes for use in page.timed(size).nodes]
        expect(isclose(sum(held), whole, rel_tol=1e-12), f"N = {size}: {held} B of {whole:g} B")
    return f"N = {listed(page.sizes)}: the nodes' caches of {tokens} tokens are {whole:,.0f} B together"


def closed_form(page: Page) -> str:
    """Check the simulated time of each token against the plan's closed form."""
    for size in page.sizes:
        times_s = page.timed(size).answers["0"].times_s
        took_s = [times_s[0], *(b - a for a, b in pairwise(times_s))]
        predict = LatencyPredictor(page.timed_setup(size), shelf(size))
        for which, found_s in enumerate(took_s):
            # The closed form counts the tokens before the current one as the prompt.
            form = predict(PROMPT + max(0, which - 1), 0)
            assert form is not None, "nothing is guessed"
            form_s = 1 / form.tokens_per_s if which else form.ttft_s
            same = isclose(found_s, form_s, rel_tol=1e-9)
            expect(same, f"N = {size}, token {which + 1}: {found_s!r} s, by the closed form {form_s!r} s")
    return f"N = {listed(page.sizes)}: each of {OUTPUT} tokens takes the closed form's time to 1e-9"


def formula(page: Page) -> str:
    """Check that all nodes together send as many bytes as the placement's formula says."""
    if page.kind == "replicas":
        raise NotClaimed("replicas exchange requests and tokens alone")
    for size in page.sizes:
        record = page.timed(size, prompt=1).record
        found = sum(row.value for node in record.nodes for row in node.metrics if row.name == TENSOR_BYTES)
        if page.kind == "pipeline":
            # Hidden states go to the next stage, and each token's number goes back.
            expected = OUTPUT * ((size - 1) * SHAPE.hidden_bytes(1) + (TOKEN_BYTES if size > 1 else 0))
        else:
            # Two all-reduces per layer, the shares of the logits, each token's number to the
            # others.
            logits = SHAPE.logits_bytes(1, 1 / size) * (size - 1)
            expected = OUTPUT * (exchanged_bytes(SHAPE, size) + logits + TOKEN_BYTES * (size - 1))
        expect(found == expected, f"N = {size}: {found:,.0f} B, by the formula {expected:,.0f} B")
    forms = {"pipeline": "(n-1) d b + 4 per token", "tensor": "2 (n-1) 2 L d b + logits + 4 (n-1) per token"}
    return f"N = {listed(page.sizes)}: exactly {forms[page.kind]}"


CHECKS: Mapping[str, Callable[[Page], str]] = {
    "tokens = one process": one_process,
    "simulator = sockets": backends,
    "determinism": determinism,
    "answered once": answered,
    "little cache": little_cache,
    "guesses change no token": guesses,
    "cache bytes": cache_bytes,
    "time = closed form": closed_form,
    "bytes = formula": formula,
}


def verify_page(
    name: str,
    given: Mapping[str, Any],
    sizes: Sequence[int],
    explicit: bool,
    backends: Sequence[str],
    seed: int,
    only: Sequence[str] | None,
    home: Path,
) -> Verification:
    """Verify the serving program *name* on *sizes* nodes.

    *explicit* says whether the user chose the sizes. Raise UsageError if *given* has options that
    only training algorithms have, or if no size is possible.
    """
    problems = [
        Problem(key, "one", f"none for {name}: its model is a small GPT") for key, value in given.items() if value
    ]
    possible = SIZES.get(PAGES[name])
    can = [size for size in sizes if possible is None or size in possible]
    if not can or (explicit and len(can) < len(sizes)):
        problems.append(Problem("--nodes", str(list(sizes)), f"some of {list(possible or ())} for {name}"))
    raise_all(problems)
    page = Page(name, can, backends, seed, home)
    found = [judged(law, partial(check, page)) for law, check in CHECKS.items() if only is None or law in only]
    return Verification(name, "a GPT of 6 layers", tuple[Check, ...](found))
