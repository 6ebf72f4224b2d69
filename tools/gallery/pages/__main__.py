"""`python -m tools.gallery.pages [NAME...]`: take the screenshots again, with a headless Chromium.

Pixels depend on the browser and its fonts, and some pages show measured times, so screenshots are
not compared. Instead, each is stored with a hash of its page's scripts, styles and texts. A
screenshot is current as long as the hash is.
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
