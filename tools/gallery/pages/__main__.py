"""`python -m tools.gallery.pages [NAME...]`: photograph the pages again, in a headless Chromium.

Pixels depend on browser and fonts, and some pages show measured times. So a screenshot is not compared: beside it is
the hash of the scripts, styles and words that its page was made of, and it counts as current while those are the same.
"""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path

from tests.support.browser import CHROMIUM
from tests.support.devtools import Page, browser
from tools.gallery.pages.kept import FOLDER, note
from tools.gallery.pages.scenes import SCENES, Scene, digest

WIDTH, SCALE = 1160, 0.75


def shoot(tab: Page, scene: Scene, folder: Path) -> bytes:
    """Return the screenshot of *scene* as a PNG."""
    tab.look(WIDTH, dark=False, height=scene.height)
    with scene.shown(tab, folder):
        tab.ask("document.activeElement.blur()")
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": scene.height, "scale": SCALE}
        found = tab.call("Page.captureScreenshot", format="png", clip=clip, optimizeForSpeed=False)
        return base64.b64decode(found["data"])


def main() -> None:
    if CHROMIUM is None:
        sys.exit("no chromium or google-chrome on the path")
    chosen = [scene for scene in SCENES if scene.name in (sys.argv[1:] or [scene.name])]
    with tempfile.TemporaryDirectory() as profile, tempfile.TemporaryDirectory() as folder:
        for scene in chosen:
            with browser(Path(profile) / scene.name) as tab:
                version = tab.call("Browser.getVersion")["product"]
                taken = shoot(tab, scene, Path(folder))
            FOLDER.mkdir(exist_ok=True)
            (FOLDER / f"{scene.name}.png").write_bytes(taken)
            note(scene.name, digest(scene), version)
            print(f"{scene.name}.png: {len(taken) / 1e3:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
