"""A set of figures, of which completion offers the figures alone."""

from __future__ import annotations

import inspect


class Figures:
    """Figures by name: the methods that return one."""

    def __dir__(self) -> list[str]:
        return drawn_by(type(self))

    def __repr__(self) -> str:
        return f"figures: {', '.join(f'{name}()' for name in dir(self))}"


def drawn_by(plots: type) -> list[str]:
    """Return the names of the methods of the class *plots* that return a figure."""
    return [
        name
        for name, method in vars(plots).items()
        if inspect.isfunction(method) and method.__annotations__.get("return") == "go.Figure" and name[0] != "_"
    ]
