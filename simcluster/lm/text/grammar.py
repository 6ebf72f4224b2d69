"""Grammars of answers in JSON, through llguidance: which tokens may come next."""

from __future__ import annotations

import importlib
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from simcluster.errors import UsageError
from simcluster.lm.text.tokens import Tokens
from simcluster.process.installed import install_extra

Allowed = npt.NDArray[np.bool_]

MOST_SCHEMA: Final = 2**16
"""Limit on the characters of a schema. llguidance itself limits the work that a grammar takes."""

COMPACT: Final = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""Settings for JSON on one line.

With free whitespace, a model could fill its answer with whitespace.
"""

JSON_OR_TEXT: Final = r"""
start: TEXT | json
TEXT: /[^{](.|\n)*/
json: %json """
"""The beginning of a grammar in llguidance's dialect of Lark; a schema follows."""

SHOWN: Final = 300


class GrammarFailed(Exception):
    """An error: the answer cannot continue under its grammar, or only with too much work."""


class Constraint(Protocol):
    """The grammar of one answer."""

    def allowed(self, answer: Sequence[int]) -> Allowed:
        """Return a mask of the tokens that may follow *answer*.

        Raise GrammarFailed if there are none, or if finding them takes too much work.
        """


class GrammarTokens:
    """The tokens of a model as grammars see them.

    Tokens of *ends* end an answer; other special tokens never occur. Raise UsageError if llguidance
    is not installed, or if no token ends an answer.
    """

    def __init__(self, tokens: Tokens, ends: Collection[int], vocabulary: int) -> None:
        if not ends:
            raise UsageError("model", "one without a token that ends an answer", "a model with such a token")
        self._library = library = _llguidance()
        self._vocabulary = vocabulary
        octets = [_octets(tokens, token) for token in range(vocabulary)]
        marks = {*tokens.marks.values(), *ends}
        wrapper = library.TokenizerWrapper(_Vocabulary(tokens, octets, sorted(ends), sorted(marks)))
        self._tokenizer = library.LLTokenizer(wrapper, n_vocab=vocabulary, eos_token=sorted(ends))
        self._limits = library.LLParserLimits(verbose_errors=False)

    def json(self, schema: Mapping[str, Any], *, or_text: bool = False) -> str:
        """Return the grammar of JSON that conforms to *schema*.

        If *or_text*, the grammar also allows text that does not begin with {. Raise UsageError if
        *schema* is too long, malformed or unsupported.
        """
        try:
            text = json.dumps(schema)
            if len(text) > MOST_SCHEMA:
                raise UsageError("schema", f"{len(text):,} characters", f"at most {MOST_SCHEMA:,}")
            matcher = self._library.LLMatcher
            if or_text:
                compact = json.dumps({**schema, "x-guidance": COMPACT})
                grammar: str = matcher.grammar_from_lark(JSON_OR_TEXT + compact)
            else:
                grammar = matcher.grammar_from_json_schema(text, overrides=COMPACT)
            why: str = matcher.validate_grammar(grammar, self._tokenizer, limits=self._limits)
        except (ValueError, RecursionError) as error:
            why = str(error)
        if why:
            raise UsageError("schema", " ".join(why[:SHOWN].split()), "a JSON schema that can be followed")
        return grammar

    def constraint(self, grammar: str) -> Constraint:
        """Return a constraint for one answer; `json` has made *grammar*."""
        matcher = self._library.LLMatcher(self._tokenizer, grammar, log_level=0, limits=self._limits)
        return _MatcherConstraint(matcher, self._vocabulary)


class _Vocabulary:
    """The tokens of a model, in the form that llguidance expects."""

    bos_token_id = None

    def __init__(self, tokens: Tokens, octets: list[bytes], ends: list[int], marks: list[int]) -> None:
        self.tokens = octets
        self.eos_token_id = ends[0]
        self.special_token_ids = marks
        self._tokens = tokens
        self._ids = {spelt: token for token, spelt in enumerate(octets) if spelt and token not in marks}
        self._longest = max(map(len, self._ids))

    def __call__(self, text: str) -> list[int]:
        """Return tokens with exactly the bytes of *text*, which the grammar requires at this point.

        Some tokenizers put a space in front of a text. Then take the longest token at each byte, up
        to a byte for which the model has no token.
        """
        octets = text.encode()
        with suppress(UsageError):
            found = self._tokens.encode(text)
            if self._tokens.octets(found) == octets:
                return found
        found, at = [], 0
        while at < len(octets):
            sizes = range(min(self._longest, len(octets) - at), 0, -1)
            size = next((size for size in sizes if octets[at : at + size] in self._ids), 0)
            if not size:
                break  # the model has no token for this byte
            found.append(self._ids[octets[at : at + size]])
            at += size
        return found


class _MatcherConstraint:
    def __init__(self, matcher: Any, vocabulary: int) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._taken: list[int] = []

    def allowed(self, answer: Sequence[int]) -> Allowed:
        matcher, taken = self._matcher, self._taken
        common = next((i for i, (a, b) in enumerate(zip(taken, answer, strict=False)) if a != b), len(taken))
        common = min(common, len(answer))
        if common < len(taken):  # a guess was wrong, or the end of the answer is computed again
            matcher.rollback(len(taken) - common)
        matcher.consume_tokens([int(token) for token in answer[common:]])
        self._taken = list(answer)
        bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        allowed = np.unpackbits(bits, bitorder="little")[: self._vocabulary].astype(np.bool_)
        if matcher.is_error() or not allowed.any():
            raise GrammarFailed(matcher.get_error())
        return allowed


def _octets(tokens: Tokens, token: int) -> bytes:
    try:
        return tokens.octets([token])
    except IndexError:
        return b""  # models may have more rows of logits than tokens


def _llguidance() -> Any:
    try:
        return importlib.import_module("llguidance")
    except ImportError:
        raise UsageError("model", "no llguidance", f"it to be installed: {install_extra('lm')}") from None
