"""A GPT, a decoder-only transformer, trained on the bytes or tokens of a text: from tiny to 175 billion parameters.

Like GPT-2 (Radford et al. 2019), it has pre-normalised layers, learned positions, and residual
projections that are initialised smaller in deeper networks. The sizes 7b and 70b follow Llama 2
(Touvron et al. 2023): they have gated feed-forward layers (Shazeer 2020) and, in the 70b, keys and
values shared between heads (Ainslie et al. 2023).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, NonNegativeFloat, PositiveInt
from pydantic_core import PydanticCustomError
from torch import Tensor, nn

from simcluster.errors import Problem, raise_all
from simcluster.workloads.data.partition import ALPHA, Tail, named_partition
from simcluster.workloads.models.bpe import BYTES
from simcluster.workloads.models.text import cut, read_text, read_tokens
from simcluster.workloads.models.token_file import read_file_tokens, vocabulary_of
from simcluster.workloads.models.transformer import GPT, GptShape
from simcluster.workloads.optimizers import PositiveFinite, named_optimizer
from simcluster.workloads.recipe import with_recipe
from simcluster.workloads.workload import Workload

Size = Literal["tiny", "125m", "350m", "1.3b", "2.7b", "6.7b", "7b", "13b", "70b", "175b"]

TOKENS = 512
LEARNT = ("bytes", "bpe")
"""The tokenizers that need no file."""
MOST_HELD_OUT = 2**24
"""The maximum number of outputs of the model for all held-out windows together, which take 64
MB.
"""

NARROW = 32
"""The minimum width for which a GPT can count as a small model. A narrower GPT may have large
outputs although it has few weights.
"""


def _without_classes(partition: object) -> object:
    """Refuse a *partition* by classes, and say why."""
    if partition == "dirichlet":
        raise PydanticCustomError("classes", "'iid' or 'redeal', since a text has no classes to deal by")
    return partition


def _gpt3(layers: int, width: int, heads: int) -> GptShape:
    """Return the shape of a GPT-3 (Brown et al. 2020, table 2.1), with GPT-2's vocabulary."""
    return GptShape(layers, width, heads, 50257, 2048, heads, 4 * width)


def _llama2(layers: int, width: int, heads: int, kv_heads: int, feed_forward: int) -> GptShape:
    """Return the shape of a Llama 2 (Touvron et al. 2023, table 1, and the published
    configurations).
    """
    return GptShape(layers, width, heads, 32000, 4096, kv_heads, feed_forward, gated=True, tied=False)


SIZES: dict[Size, GptShape] = {
    "tiny": GptShape(2, 64, 4, BYTES, 64, 4, 256),  # our own: 0.1 million parameters, seconds on a laptop
    "125m": _gpt3(12, 768, 12),
    "350m": _gpt3(24, 1024, 16),
    "1.3b": _gpt3(24, 2048, 16),  # the table's 24 heads of 128 do not make 2048
    "2.7b": _gpt3(32, 2560, 32),
    "6.7b": _gpt3(32, 4096, 32),
    "7b": _llama2(32, 4096, 32, 32, 11008),
    "13b": _gpt3(40, 5120, 40),  # the table's 5140 is not 40 heads of 128
    "70b": _llama2(80, 8192, 64, 8, 28672),
    "175b": _gpt3(96, 12288, 96),
}


@with_recipe
def gpt(
    *,
    size: Size = "tiny",
    layers: PositiveInt | None = None,
    width: PositiveInt | None = None,
    heads: PositiveInt | None = None,
    kv_heads: PositiveInt | None = None,
    head_width: PositiveInt | None = None,
    feed_forward: PositiveInt | None = None,
    vocabulary: Annotated[int, Field(ge=BYTES)] | None = None,
    context: PositiveInt | None = None,
    tied: bool | None = None,
    experts: PositiveInt | None = None,
    active: PositiveInt | None = None,
    batch_size: PositiveInt = 16,
    learning_rate: PositiveFinite = 0.003,
    momentum: Annotated[NonNegativeFloat, Field(lt=1)] = 0.0,
    optimizer: Literal["sgd", "adamw"] = "adamw",
    clip_norm: PositiveFinite | None = 1.0,
    partition: Annotated[Literal["iid", "redeal"], BeforeValidator(_without_classes)] = "iid",
    tail: Tail = "keep",
    tokenizer: Literal["bytes", "bpe"] | str = "bytes",
    data: str | None = None,
) -> Workload:
    """Return a workload that trains a GPT of a named *size* (tiny, 125m, 1.3b, 7b, 70b, ...) on the
    bytes or tokens of a text, with cross entropy.

    *layers*, *width*, *heads*, *kv_heads*, *feed_forward*, *vocabulary* and *context* override the
    values of the size. Setting *heads* gives every head its own keys and values unless *kv_heads*
    is set, and setting *width* makes the feed-forward layers 4 times as wide unless *feed_forward*
    is set. *head_width*: width / heads by default. *tied*: whether the output layer shares the
    embedding's weights; by default, the size decides. *experts*: the number of feed-forward
    networks of each layer, among which a router chooses *active* (2) for each token; they have no
    dropout. *batch_size* is the number of windows of *context* tokens per rank. *partition* and
    *tail* deal the windows to the ranks as `mnist_mlp` deals images, by "iid" or "redeal".
    *tokenizer*: `bytes`; `bpe`, which learns *vocabulary* tokens (512 if the size's vocabulary is
    bytes) from the training text; or the path of a tokenizer.json, whose tokens must fit into the
    vocabulary. The loss is per byte or token. *data* is the path of a text file; the default is a
    public-domain text of 600 kB in the package, which consists of prose and C. The last tenth of
    the text is held out. Raise UsageError for settings that contradict each other and for a text
    that is too short.
    """
    shape = shape_of(
        size, tokenizer, layers=layers, width=width, heads=heads, kv_heads=kv_heads, head_width=head_width,
        feed_forward=feed_forward, vocabulary=vocabulary, context=context, tied=tied, experts=experts, active=active,
    )  # fmt: skip
    make_optimizer = named_optimizer(optimizer, learning_rate, momentum)
    most_held_out = max(1, MOST_HELD_OUT // (shape.context * shape.vocabulary))
    if tokenizer in LEARNT:
        text = read_text(data) if tokenizer == "bytes" else read_tokens(data, shape.vocabulary)
    else:
        text = read_file_tokens(data, tokenizer)
    train, test = cut(text, shape.context, most_held_out, "bytes" if tokenizer == "bytes" else "tokens")
    return Workload(
        name="gpt",
        weights_bytes=4 * shape.parameters,
        tokens=shape.context,
        value_free=shape.width >= NARROW,
        model=partial(GPT, shape),
        loss=next_byte_loss,
        train=train,
        test=test,
        batch_size=batch_size,
        optimizer=make_optimizer,
        partition=named_partition(partition, tail, ALPHA, batch_size),
        clip_norm=clip_norm,
    )


def shape_of(size: Size, tokenizer: str, **changes: int | None) -> GptShape:
    """Return the shape of *size* with all *changes* that are not None.

    Raise UsageError if *heads* does not divide *width* and there is no *head_width*, if *kv_heads*
    does not divide *heads*, or if the tokens of a tokenizer's file do not fit into the vocabulary.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    tokens = 0 if tokenizer in LEARNT else vocabulary_of(tokenizer)
    if tokenizer != "bytes" and SIZES[size].vocabulary == BYTES:
        given.setdefault("vocabulary", tokens or TOKENS)
    if "heads" in given:
        given.setdefault("kv_heads", given["heads"])
    if "width" in given:
        given.setdefault("feed_forward", 4 * given["width"])
    if "experts" in given:
        given.setdefault("active", min(2, given["experts"]))
    shape = replace(SIZES[size], **given)  # type: ignore[arg-type]
    problems = []
    if shape.vocabulary < tokens:
        problems.append(Problem("vocabulary", repr(shape.vocabulary), f"at least {tokens}, the tokens of {tokenizer}"))
    if shape.head_width is None and shape.width % shape.heads:
        expected = f"a multiple of the {shape.heads} heads, or a head_width"
        problems.append(Problem("width", repr(shape.width), expected))
    if shape.heads % shape.kv_heads:
        problems.append(Problem("kv_heads", repr(shape.kv_heads), f"a divisor of the {shape.heads} heads"))
    if shape.active > shape.experts:
        expected = f"at most the {shape.experts} experts" if shape.experts else "none without experts"
        problems.append(Problem("active", repr(shape.active), expected))
    raise_all(problems)
    return shape


def next_byte_loss(scores: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy in nats over all positions of all windows."""
    return nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten().long())
