"""The chat page. Its style and scripts are inline, and it only fetches from this server."""

from __future__ import annotations

from functools import cache
from typing import Final

from simcluster.web.assets import asset, joined
from simcluster.web.one_page import OnePage

HERE: Final = "simcluster.lm.serving.web"
SCRIPTS: Final = ("markdown.js", "stream.js", "store.js", "shelf.js", "marks.js", "turns.js", "chat.js")


@cache
def page() -> OnePage:
    """Return the page, with its style and scripts."""
    style = asset("base.css") + asset("chat.css", HERE)
    script = joined(asset("dom.js"), asset("login.js"), *(asset(name, HERE) for name in SCRIPTS))
    return OnePage(asset("chat.html", HERE), style, script)
