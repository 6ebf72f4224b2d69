"""The extra `lm`: libraries for language models, each imported where it is first used."""

from __future__ import annotations

from importlib.util import find_spec

from simcluster.errors import UsageError
from simcluster.process.installed import install_extra


def need_extra(*modules: str) -> None:
    """Raise UsageError if one of *modules*, which the extra `lm` installs, is missing."""
    if missing := [name for name in modules if find_spec(name) is None]:
        raise UsageError("--model", f"no package {', '.join(missing)}", f"it to be installed: {install_extra('lm')}")
