"""The files of pages: styles and scripts, as they are or joined into one script for a page that fetches nothing."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_MODULE_WORDS = re.compile(r"^(import .*;\n|export (?=(async )?(function|const|let|class)\b))", re.MULTILINE)


@cache
def asset(name: str, package: str = "simcluster.web") -> str:
    """Return the text of the file *name* among the pages of *package*."""
    return (resources.files(package) / "page" / name).read_text(encoding="utf-8")


def joined(*modules: str) -> str:
    """Return the texts of JavaScript *modules*, each after those that it imports, as one script."""
    return "\n".join(_MODULE_WORDS.sub("", module) for module in modules)
