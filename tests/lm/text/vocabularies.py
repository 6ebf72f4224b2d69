"""Small tokenizers of every kind that models have, made with the library `tokenizers`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXT = [
    "The quick brown fox jumps over the lazy dog, and it's not the last one that we'll see today.",
    "In 2024 there were 1,234 of them; 56 % came back.\n\n    def f(x):\n        return x + 1\n",
    "Müßiggang ist aller Laster Anfang. Ça va? 東京は日本の首都です。",
] * 4
MARKS = ("<s>", "</s>", "<|user|>", "<|assistant|>", "<|im_start|>", "<|im_end|>", "<start_of_turn>", "<end_of_turn>")
LAYOUT = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|system|>", "<|end|>", "[INST]", "[/INST]")


def _marked(library: Tokenizer) -> Tokenizer:
    """Add marks: special ones, of which one takes the blanks after it, and others."""
    names = [AddedToken(name, special=True, normalized=False, rstrip=name == "<|user|>") for name in (*MARKS, *LAYOUT)]
    plain = [AddedToken(name, special=False, normalized=False) for name in ("<think>", "</think>")]
    library.add_tokens([*names, *plain])
    begin = library.token_to_id("<s>")
    library.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", begin)])
    return library


@cache
def byte_level(pattern: bool = True) -> str:
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern)
    library.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    library.train_from_iterator(TEXT, trainer)
    library.add_tokens([AddedToken("   ", special=False, normalized=False)])
    return _marked(library).to_str()


@cache
def spaced(kind: str) -> str:
    """Return a tokenizer of pairs that writes spaces as ▁ and unknown characters as bytes.

    The *kind* says where a space is put in front: "first", "always" (legacy), or "never".
    """
    spaces = normalizers.Replace(" ", "▁")
    learnt = Tokenizer(models.BPE())
    learnt.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces])
    learnt.train_from_iterator([word for text in TEXT for word in text.split()], trainers.BpeTrainer(vocab_size=200))
    pieces = sorted(learnt.get_vocab(), key=learnt.token_to_id)
    every = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces, "▁▁", "<s>", "</s>", "</", "s>"]
    ids = {piece: place for place, piece in enumerate(dict.fromkeys(every))}
    # As in real files, a mark could be merged of plain characters.
    merges = [(a[:cut], a[cut:]) for a in ids for cut in range(1, len(a)) if {a[:cut], a[cut:]} <= ids.keys()]
    library = Tokenizer(models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    library.decoder = decoders.Sequence(steps[:3] if kind == "never" else steps)
    library.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces] if kind == "always" else [spaces])
    if kind == "first":
        library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return _marked(library).to_str()


@cache
def unigram() -> str:
    library = Tokenizer(models.Unigram())
    library.normalizer = normalizers.NFKC()
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=200, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False
    )
    library.train_from_iterator(TEXT, trainer)
    library.decoder = decoders.Metaspace()
    return _marked(library).to_str()


KINDS: dict[str, Callable[[], str]] = {
    "bytes": byte_level,
    "spaces first": lambda: spaced("first"),
    "spaces always": lambda: spaced("always"),
    "spaces never": lambda: spaced("never"),
    "unigram": unigram,
}
