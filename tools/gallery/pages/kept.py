"""Notes on the screenshots: the hash of each page's sources at the time of the screenshot."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

from tests.support.root import ROOT
from tools.gallery.pages.scenes import SCENES, digest

FOLDER = ROOT / "docs" / "figures" / "pages"
NOTES = FOLDER / "pages.json"


def notes() -> dict[str, Any]:
    """Return screenshot -> its notes."""
    return json.loads(NOTES.read_text(encoding="utf-8")) if NOTES.is_file() else {}


def note(name: str, sources_sha256: str, browser: str) -> None:
    """Store the notes on screenshot *name*: the hash of its page's sources, the browser, and the
    date.
    """
    found = {"sources_sha256": sources_sha256, "browser": browser, "made_on": date.today().isoformat()}
    text = json.dumps(dict(sorted((notes() | {name: found}).items())), indent=1)
    NOTES.write_text(text + "\n", encoding="utf-8")


def stale() -> list[str]:
    """Return the names of screenshots that are missing or do not match the sources of
    their pages.
    """
    known = notes()
    return [
        scene.name
        for scene in SCENES
        if not (FOLDER / f"{scene.name}.png").is_file()
        or known.get(scene.name, {}).get("sources_sha256") != digest(scene)
    ]
