"""The styles and scripts of pages, as files, or joined for a page that fetches nothing."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_MODULE_WORDS = re.compile(r"^(import .*;\n|export (?=(async )?(function|const|let|class)\b))", re.MULTILINE)


@cache
def asset(name: str, package: str = "simcluster.web") -> str:
    """Return the text of the file *name* in the directory `page` of *package*."""
    return (resources.files(package) / "page" / name).read_text(encoding="utf-8")


def joined(*modules: str) -> str:
    """Return the JavaScript *modules* joined into one script, without imports and exports.

    The modules must be in the order of their imports.
    """
    return "\n".join(_MODULE_WORDS.sub("", module) for module in modules)
