"""Chat templates of model files: messages to token ids."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from simcluster.errors import Problem, UsageError, raise_all
from simcluster.lm.text.renderer import rendered
from simcluster.lm.text.tokenizer import LibraryTokens
from simcluster.lm.text.tokens import BREAK

ROLES: Final = ("system", "developer", "user", "assistant", "tool")
MOST_TEMPLATE: Final = 2**16
"""Limit on the characters of a template; known ones have up to 20,000."""


class Chat:
    """The chat *template* of a model file.

    *marks* maps variables of the template, such as `bos_token`, to the names of special tokens.
    Raise ValueError if the template is malformed or too long.
    """

    def __init__(self, template: str, tokens: LibraryTokens, marks: Mapping[str, str]) -> None:
        if len(template) > MOST_TEMPLATE:
            raise ValueError(f"found {len(template):,} characters, expected at most {MOST_TEMPLATE:,}")
        self._template = template
        self._tokens = tokens
        self._variables = {**marks, "add_generation_prompt": True, "tools": None, "documents": None}
        rendered(template, [], {})

    def render(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Return the tokens of *messages*, followed by those that begin the assistant's answer.

        A message maps "role" and "content" to strings. The name of a special token in a content
        becomes plain characters, not the token. Raise UsageError with all problems of the messages,
        or with the error of a template that refuses them.
        """
        problems = [] if messages else [Problem("messages", "none", "one or more")]
        for place, message in enumerate(messages):
            if message.get("role") not in ROLES:
                expected = f"one of {', '.join(ROLES)}"
                problems.append(Problem(f"messages[{place}].role", repr(message.get("role")), expected))
            if not isinstance(message.get("content"), str):
                problems.append(Problem(f"messages[{place}].content", repr(message.get("content")), "a text"))
        raise_all(problems)
        names = {} if re.search("['\"]developer['\"]", self._template) else {"developer": "system"}
        turns = [
            {"role": names.get(one["role"], one["role"]), "content": one["content"].replace(BREAK, "\ufffd")}
            for one in messages
        ]
        try:
            return self._tokens.encode_marked(rendered(self._template, turns, self._variables))
        except ValueError as error:
            raise UsageError("chat template", str(error)[:500], "") from None
