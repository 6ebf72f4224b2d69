"""The guesses that a command asks for, checked: looked up in the text, or those of a small model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from simcluster.errors import Problem, UsageError
from simcluster.inference.models.model_file import ModelFile
from simcluster.inference.plan.shape import Shape
from simcluster.serving.setup import SmallModel

MOST_GUESSES, USUAL_GUESSES = 64, 4


class Opened(NamedTuple):
    """An opened model, None if only times are wanted; its shape, its context, and the small model that guesses."""

    file: ModelFile | None
    shape: Shape
    context: int
    draft: SmallModel | None = None


@dataclass(frozen=True)
class Guessing:
    """At most *guesses* of the next tokens per pass, by the small model *draft*, or looked up in the text without one.

    *guesses* None: USUAL_GUESSES with a *draft*, else none. *acceptance*: the chance that a guess is right, for times
    alone, where no token is known.
    """

    guesses: int | None = None
    draft: str | None = None
    acceptance: float | None = None

    @property
    def most(self) -> int:
        """The most guesses per pass."""
        if self.guesses is None:
            return 0 if self.draft is None else USUAL_GUESSES
        return self.guesses

    def problems(self, *, only_times: bool) -> list[Problem]:
        """Return what is wrong with the numbers, whatever the models."""
        least, most = (0 if self.draft is None else 1), MOST_GUESSES
        needs_draft = only_times and self.draft is None
        in_words = (
            "none without --draft, as no token is known" if needs_draft else f"a whole number from {least} to {most}"
        )
        chance = self.acceptance
        if not (only_times and self.draft is not None):
            is_well, expected = chance is None, "it with --draft and times alone; elsewhere the model decides"
        else:
            is_well, expected = chance is not None and 0 <= chance <= 1, "the chance that a guess is right, from 0 to 1"
        checks = (
            ("--guesses", self.most, in_words, least <= self.most <= (0 if needs_draft else most)),
            ("--acceptance", "none" if chance is None else f"{chance:g}", expected, is_well),
        )
        return [Problem(flag, str(found), words) for flag, found, words, well in checks if not well]

    def opened(self, large: Opened, read: Callable[[str], Opened]) -> SmallModel | None:
        """Return the small model, which *read* opens, for the *large* one. Raise UsageError if their tokens differ."""
        if self.draft is None:
            return None
        try:
            small = read(self.draft)
        except UsageError as error:
            raise UsageError(
                [Problem("--draft", f"{one.key}: {one.found}", one.expected) for one in error.problems]
            ) from None
        if difference := _difference(small, large):
            found, expected = difference
            expected += f", as {large.shape.name} has"
            raise UsageError(Problem("--draft", f"{small.shape.name} with {found}", expected))
        return SmallModel(self.draft, small.shape, small.context, self.acceptance or 0.0)


NO_GUESSES: Final = Guessing()


def _difference(small: Opened, large: Opened) -> tuple[str, str] | None:
    """Return the first difference between the tokens of two models, as (found, expected); None if there is none."""
    file, shape, other, its_shape = small.file, small.shape, large.file, large.shape
    if shape.vocabulary != its_shape.vocabulary:
        return f"a vocabulary of {shape.vocabulary:,} tokens", f"a vocabulary of {its_shape.vocabulary:,} tokens"
    if file is None or other is None:
        return None
    if file.ends != other.ends:
        return f"the end tokens {sorted(file.ends)}", f"{sorted(other.ends)}"
    mine, its = file.tokenizer, other.tokenizer
    if mine is None or its is None:
        return None
    for name in sorted({*mine.marks, *its.marks}):
        if mine.marks.get(name) != its.marks.get(name):
            return f"the special token {name[:40]!r} as {mine.marks.get(name)}", f"{its.marks.get(name)}"
    for token in range(shape.vocabulary):
        if mine.octets([token]) != its.octets([token]):
            return f"token {token} as {mine.octets([token])[:40]!r}", f"{its.octets([token])[:40]!r}"
    return None
