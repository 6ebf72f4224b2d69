"""The tokenizer that the metadata of a GGUF file describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from simcluster.lm.extra import need_extra

if TYPE_CHECKING:
    from tokenizers import Tokenizer

UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4
"""Types of tokens that are found in a text before it is split into words."""

MOST_CHARACTERS: Final = 256
"""Limit on the characters of a token for which `_merges` finds pairs; known ones are shorter."""

_DIGIT, _OTHER, _BLANK = r"\p{N}", r" ?[^\s\p{L}\p{N}]+", r"\s+(?!\S)|\s+"
_GPT2 = rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?{_DIGIT}+|{_OTHER}|{_BLANK}"
_SUFFIX, _FIRST, _LINES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", r"[^\r\n\p{L}\p{N}]?", rf"\s*[\r\n]+|{_BLANK}"
_QWEN2 = rf"{_SUFFIX}|{_FIRST}\p{{L}}+|{_DIGIT}|{_OTHER}[\r\n]*|{_LINES}"
_LLAMA3 = rf"{_SUFFIX}|{_FIRST}\p{{L}}+|{_DIGIT}{{1,3}}|{_OTHER}[\r\n]*|{_LINES}"
_QWEN35 = rf"{_SUFFIX}|{_FIRST}[\p{{L}}\p{{M}}]+|{_DIGIT}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_LINES}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = rf"{_FIRST}{_UPPER}*{_LOWER}+%s|{_FIRST}{_UPPER}+{_LOWER}*%s|{_DIGIT}%s|{_OTHER}[\r\n/]*|{_LINES}"
_RULES = {
    "gpt-2 phi-2 gigachat a.x-4.0 mellum olmo mpt jais trillion granite-docling exaone4": (_GPT2,),
    "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2": (_DIGIT, _GPT2),
    "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 dbrx smaug-bpe chatglm-bpe glm4": (_LLAMA3,),
    "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2": (_QWEN2,),
    "qwen35": (_QWEN35,),
    "gpt-4o llama4 kanana2 talkie minimax-m2": (_CASED % (f"{_SUFFIX}?", f"{_SUFFIX}?", "{1,3}"),),
    "tekken": (_CASED % ("", "", ""),),
}
PRE_TOKENIZERS: Final = {name: patterns for names, patterns in _RULES.items() for name in names.split()}
"""GGUF's name of a pre-tokenizer -> the patterns that split a text into words, in turn."""

_WHOLE = ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "tekken")
"""Pre-tokenizers that keep a word whole if it is a token, and by default begin prompts with BOS."""


def gguf_library(facts: Mapping[str, Any], architecture: str) -> Tokenizer:
    """Return the tokenizer in *facts*, the metadata of a model of *architecture*.

    Raise ValueError if it is malformed or of an unsupported kind, and KeyError if a key is missing.
    """
    need_extra("tokenizers")
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    found = {key.removeprefix("tokenizer.ggml."): value for key, value in facts.items()}
    kind, pre = found["model"], found.get("pre")
    is_gemma = "gemma" in f"{kind} {architecture}"
    # Gemma's files write tokens of several spaces as they are.
    tokens = ["▁" * len(one) if is_gemma and not one.strip(" ") else one for one in found["tokens"]]
    ids = {token: place for place, token in enumerate(tokens)}
    if len(ids) < len(tokens):
        raise ValueError(f"tokenizer.ggml.tokens: found {len(tokens) - len(ids):,} that occur twice")
    merges = [(one[:at], one[at + 1 :]) for one in found.get("merges") or () if (at := one.find(" ", 1))]
    for place, (first, second) in enumerate(merges):
        if not {first, second, first + second} <= ids.keys():
            raise ValueError(f"merges[{place}]: found {(first, second)!r:.60}, expected one whose result is a token")
    if kind == "gpt2" and pre in PRE_TOKENIZERS:
        library = Tokenizer(models.BPE(ids, merges, ignore_merges=pre in _WHOLE))
        cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in PRE_TOKENIZERS[pre]]
        library.pre_tokenizer = pre_tokenizers.Sequence([*cuts, pre_tokenizers.ByteLevel(False, use_regex=False)])
        library.decoder = decoders.ByteLevel()
    elif kind in ("llama", "gemma4"):
        # Gemma's merges follow the order of its tokens; those of other models follow the scores.
        order = range(len(tokens)) if is_gemma else [-score for score in found["scores"]]
        library = Tokenizer(models.BPE(ids, merges or _merges(ids, order), byte_fallback=True, fuse_unk=True))
        has_prefix = not is_gemma and found.get("add_space_prefix", True)
        # phi3 has the prefix after special tokens as well.
        prefix = [normalizers.Prepend("▁")] if has_prefix and architecture == "phi3" else []
        library.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", "▁")])
        if has_prefix and not prefix:
            library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        library.decoder = decoders.Sequence(steps if has_prefix else steps[:3])
    else:
        expected = f"gpt2 with one of {', '.join(PRE_TOKENIZERS)}, llama, or gemma4"
        raise ValueError(f"tokenizer.ggml.model: found {kind!r:.60} with the rule {pre!r:.60}, expected {expected}")
    types = zip(tokens, found["token_type"], strict=True)
    whole = [(token, type_) for token, type_ in types if type_ in (UNKNOWN, CONTROL, USER_DEFINED)]
    library.add_tokens([AddedToken(name, special=one != USER_DEFINED, normalized=False) for name, one in whole])
    begin = found.get("bos_token_id", 1 if kind == "llama" else None)
    if begin is not None and kind != "gemma4" and found.get("add_bos_token", kind == "llama" or pre in _WHOLE):
        library.post_processor = processors.TemplateProcessing("B $A", None, [("B", int(begin))])
    return library


def _merges(ids: Mapping[str, int], order: Sequence[float]) -> list[tuple[str, str]]:
    """Return all pairs of tokens in *ids* that merge into a token of *ids*.

    Sort the pairs by the *order* of the merged token, then by the length of the first part, longest
    first.
    """
    cuts = ((token, at) for token in ids if len(token) <= MOST_CHARACTERS for at in range(1, len(token)))
    pairs = [(token[:at], token[at:]) for token, at in cuts if token[:at] in ids and token[at:] in ids]
    return sorted(pairs, key=lambda pair: (order[ids[pair[0] + pair[1]]], -len(pair[0]), -len(pair[1])))
