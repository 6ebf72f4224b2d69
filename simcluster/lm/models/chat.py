"""The chat template ChatML, as SmolLM2 and others have it: messages to token ids, without a template engine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from simcluster.errors import Problem, raise_all
from simcluster.lm.models.tokens import Tokens

BEGIN, END = "<|im_start|>", "<|im_end|>"
ROLES: Final = ("system", "user", "assistant")
MOST_TEMPLATE: Final = 2_000
"""Limit on the characters of a template: those of ChatML have about 400."""

_TAG = re.compile(r"(\{%-?(?:[^'\"%]|'[^']*'|\"[^\"]*\")*-?%\}|\{\{-?(?:[^'\"}]|'[^']*'|\"[^\"]*\")*-?\}\})")
_PART = re.compile(r"'[^']*'|\"[^\"]*\"|[^'\"]+")
_DEFAULT = (
    r"\{%if(?:loop\.firstand)?messages\[0\]\['role'\]!='system'%\}"
    r"\{\{'<\|im_start\|>system\n([^'{}|]*)<\|im_end\|>\n'\}\}\{%endif%\}"
)
_CHATML = re.compile(
    rf"(?:{_DEFAULT})?\{{%formessageinmessages%\}}(?:{_DEFAULT})?"
    r"\{\{'<\|im_start\|>'\+message\['role'\]\+'\n'\+message\['content'\]\+'<\|im_end\|>\n'\}\}\{%endfor%\}"
    r"\{%ifadd_generation_prompt%\}\{\{'<\|im_start\|>assistant\n'\}\}\{%endif%\}"
)


class Chat:
    """The template of a model's file. Raises ValueError for one that is not ChatML, or without its marks as tokens."""

    def __init__(self, template: str, tokenizer: Tokens) -> None:
        found = _CHATML.fullmatch(_plain(template)) if len(template) <= MOST_TEMPLATE else None
        if found is None:
            shown = "".join(filter(str.isprintable, template[:100]))
            raise ValueError(f"a template of {len(template):,} characters that begins with {shown!r}")
        missing = [mark for mark in (BEGIN, END) if mark not in tokenizer.marks]
        if missing:
            raise ValueError(f"no token {missing[0]}")
        self._tokenizer = tokenizer
        self.system: str | None = found[1] if found[1] is not None else found[2]
        """The message that stands first unless the messages begin with one of the system."""

    def render(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Return the tokens of *messages* (role, content), and those that begin the assistant's answer.

        The names of marks in a content are plain characters. Raises UsageError with all faults.
        """
        problems = [] if messages else [Problem("messages", "none", "one or more")]
        for place, message in enumerate(messages):
            if message.get("role") not in ROLES:
                expected = f"one of {', '.join(ROLES)}"
                problems.append(Problem(f"messages[{place}].role", repr(message.get("role")), expected))
            if not isinstance(message.get("content"), str):
                problems.append(Problem(f"messages[{place}].content", repr(message.get("content")), "a text"))
        raise_all(problems)
        marks, encode, tokens = self._tokenizer.marks, self._tokenizer.encode, []
        turns = [(message["role"], message["content"]) for message in messages]
        if self.system is not None and turns[0][0] != "system":
            turns.insert(0, ("system", self.system))
        for role, content in turns:
            tokens += [marks[BEGIN], *encode(f"{role}\n{content}"), marks[END], *encode("\n")]
        return [*tokens, marks[BEGIN], *encode("assistant\n")]


def _plain(template: str) -> str:
    """Return *template* without the blanks that print nothing, and each expression in one spelling."""
    pieces = ["", *_TAG.split(template), ""]  # text, and tags in between
    for before, text, after in zip(pieces[:-1:2], pieces[1::2], pieces[2::2], strict=True):
        if text.strip() or not (before.endswith(("-%}", "-}}")) or after.startswith(("{%-", "{{-"))):
            # Jinja as it is set up for templates drops a line break after a block, and blanks between that and a block.
            rest = text.removeprefix("\n") if before.endswith("%}") else text
            if rest.strip(" \t") or (rest and not (rest != text and after.startswith("{%"))):
                return template  # it prints text outside the tags, which ChatML does not
    return "".join(map(_one_spelling, pieces[2::2]))


def _one_spelling(tag: str) -> str:
    tag = re.sub(r"^(\{[{%])-|-([%}]\})$", r"\1\2", tag)
    parts = [
        "'" + part[1:-1].replace("\\n", "\n") + "'" if part[0] in "'\"" else re.sub(r"\s", "", part)
        for part in _PART.findall(tag)
    ]
    joined = "".join(parts).replace("'+'", "")
    return re.sub(r"\bmessage\.(role|content)\b", r"message['\1']", joined)
