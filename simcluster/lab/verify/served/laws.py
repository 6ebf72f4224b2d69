"""The laws of the pages that serve a model: `generate`, `generate_tensor` and `serve_replicas`.

Tokens are those of a small seeded GPT, greedy and drawn, of requests that come close together. Times and bytes are
those of a shape without weights, on a star of equal devices. Their oracles are the whole model in one process, without
a scheduler, and the closed forms of the plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from math import isclose
from pathlib import Path
from typing import Any, Final

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
from simcluster.lm.plan.placements import Kind
from simcluster.lm.plan.times import (
    TOKEN_BYTES,
    NodePace,
    all_reduce,
    exchanged_bytes,
    gathered_s,
    hop_s,
    pace,
    pipeline_s,
    tensor_s,
    told_s,
)
from simcluster.lm.serving.desk.desks import END, TOKEN
from simcluster.lm.serving.run import ServingResult
from simcluster.lm.serving.setup import PlacementLayout
from simcluster.topology import Topology


def _differing(page: Page, found: ServingResult) -> str:
    wrong = [name for name, tokens in tokens_of(found).items() if tokens != page.expected[name]]
    return f"other tokens than one process for request {listed(wrong)}" if wrong else ""


def one_process(page: Page) -> str:
    for size in page.sizes:
        wrong = _differing(page, page.answers(size))
        expect(not wrong, f"N = {size}: {wrong}")
    told = f"{len(page.requests)} requests at once, greedy and drawn, get the tokens of each alone"
    return f"N = {listed(page.sizes)}: {told}"


def backends(page: Page) -> str:
    if "sockets" not in page.backends:
        raise NotClaimed("not asked for: needs both backends")
    wrong = _differing(page, page.answers(page.middle, "sockets"))
    return expect(not wrong, wrong or f"N = {page.middle}: real processes give the simulator's tokens")


def determinism(page: Page) -> str:
    first, second = page.answers(page.middle), page.answered_again(page.middle)
    same = first.record.trace_sha256 == second.record.trace_sha256 and first.answers == second.answers
    return expect(
        same, f"two runs give {'one trace' if same else 'different traces'}, {first.record.trace_sha256[:12]}"
    )


def answered(page: Page) -> str:
    for size in page.sizes:
        rows = Counter((row.name, row.step) for node in page.answers(size).record.nodes for row in node.metrics)
        for one in page.requests:
            wanted = [(f"{TOKEN}{one.id}", step + 1) for step in range(one.max_tokens)] + [
                (f"{END}{one.id}", one.max_tokens)
            ]
            told = [name for name in rows.elements() if name[0] in (f"{TOKEN}{one.id}", f"{END}{one.id}")]
            expect(
                sorted(told) == sorted(wanted),
                f"N = {size}: request {one.id} of {one.max_tokens} tokens was told {told}",
            )
    return f"N = {listed(page.sizes)}: every token and every end is told once"


def little_cache(page: Page) -> str:
    """Room for the largest request alone: others must give theirs back, and every block must return."""
    largest = max(len(one.prompt) + one.max_tokens for one in page.requests)
    blocks, size = -(-largest // BLOCK_TOKENS), page.sizes[0]
    found = page.answers(size, blocks=blocks)
    wrong = _differing(page, found)
    told = f"in {blocks} blocks, where requests lost theirs {found.preemptions} times, the tokens are the same"
    return expect(not wrong, f"N = {size}: {wrong or told}")


def guesses(page: Page) -> str:
    found = page.answered_again(page.middle, guesses=3)
    right, wrong = f"with {found.accepted} of {found.proposed} guesses right", _differing(page, found)
    return expect(not wrong, f"N = {page.middle}, {right}: {wrong or 'the same tokens'}")


def cache_bytes(page: Page) -> str:
    """A token's keys and values are on one node, or in parts on several: together they take what one node's take."""
    tokens = PROMPT + OUTPUT - 1  # the last one is not read again
    whole = SHAPE.cache_bytes(LAYERS, tokens)
    for size in page.sizes:
        held = [use.cache_bytes for use in page.timed(size).nodes]
        expect(isclose(sum(held), whole, rel_tol=1e-12), f"N = {size}: {held} B of {whole:g} B")
    return f"N = {listed(page.sizes)}: the nodes' caches of {tokens} tokens are {whole:,.0f} B together"


def closed_form(page: Page) -> str:
    for size in page.sizes:
        times_s = page.timed(size).answers["0"].times_s
        took_s = [times_s[0], *(b - a for a, b in pairwise(times_s))]
        for which, found_s in enumerate(took_s):
            tokens, context = (PROMPT, 0) if which == 0 else (1, PROMPT + which - 1)
            form_s = FORMS[page.kind](page.layout(size), shelf(size), tokens, context)
            same = isclose(found_s, form_s, rel_tol=1e-9)
            expect(same, f"N = {size}, token {which + 1}: {found_s!r} s, by the closed form {form_s!r} s")
    return f"N = {listed(page.sizes)}: each of {OUTPUT} tokens takes the closed form's time to 1e-9"


def _pace(cluster: Topology, name: str, tokens: int, context: int, share: float = 1.0) -> NodePace:
    device = cluster.nodes[name].device
    assert device is not None, "all nodes are workers"
    return pace(device, SHAPE, 1, tokens, context, share)


def _pipeline_s(layout: PlacementLayout, cluster: Topology, tokens: int, context: int) -> float:
    names = cluster.workers
    paces = [_pace(cluster, name, tokens, context) for name in names]
    stages_s = [
        one.stage_s(layers, place == len(names) - 1)
        for place, (one, layers) in enumerate(zip(paces, layout.layers, strict=True))
    ]
    hops_s = [hop_s(cluster, a, b, SHAPE.hidden_bytes(tokens)) for a, b in pairwise(names)]
    return pipeline_s(stages_s, hops_s, hop_s(cluster, names[-1], names[0], TOKEN_BYTES))


def _tensor_s(layout: PlacementLayout, cluster: Topology, tokens: int, context: int) -> float:
    names, n = cluster.workers, len(cluster.workers)
    paces = [_pace(cluster, name, tokens, context, 1 / n) for name in names]
    ends_s = told_s(cluster, names, TOKEN_BYTES * tokens) + gathered_s(cluster, names, SHAPE.logits_bytes(1, 1 / n))
    return tensor_s(SHAPE, paces, all_reduce(cluster, names), ends_s, tokens)


def _replica_s(layout: PlacementLayout, cluster: Topology, tokens: int, context: int) -> float:
    """Return the time of the first replica, which has the queue: it takes a single request itself."""
    return _pace(cluster, cluster.workers[0], tokens, context).stage_s(LAYERS, True)


FORMS: Final[Mapping[Kind, Callable[[PlacementLayout, Topology, int, int], float]]] = {
    "pipeline": _pipeline_s, "tensor": _tensor_s, "replicas": _replica_s
}  # fmt: skip
"""The seconds of *tokens* new tokens after *context* others."""


def formula(page: Page) -> str:
    if page.kind == "replicas":
        raise NotClaimed("replicas exchange requests and tokens alone")
    for size in page.sizes:
        record = page.timed(size, prompt=1).record
        found = sum(row.value for node in record.nodes for row in node.metrics if row.name == TENSOR_BYTES)
        if page.kind == "pipeline":  # the stream to the next stage, and each token's number back
            expected = OUTPUT * ((size - 1) * SHAPE.hidden_bytes(1) + (TOKEN_BYTES if size > 1 else 0))
        else:  # two all-reduces a layer, the logits' shares, each token's number to the others
            logits = SHAPE.logits_bytes(1, 1 / size) * (size - 1)
            expected = OUTPUT * (exchanged_bytes(SHAPE, size) + logits + TOKEN_BYTES * (size - 1))
        expect(found == expected, f"N = {size}: {found:,.0f} B, by the formula {expected:,.0f} B")
    forms = {"pipeline": "(n-1) d b + 4 per token", "tensor": "2 (n-1) 2 L d b + logits + 4 (n-1) per token"}
    return f"N = {listed(page.sizes)}: exactly {forms[page.kind]}"


CHECKS: Final[Mapping[str, Callable[[Page], str]]] = {
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
    """Verify the page *name* on *sizes* nodes, which were *explicit* or are defaults. Raise UsageError for *given*
    parts of a request that only algorithms of training have, or if no size is possible.
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
