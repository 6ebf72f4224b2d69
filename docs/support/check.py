"""Every link of the built site leads to a file and an anchor, its Markdown copies included, and no page loads anything
from elsewhere.

python docs/support/check.py build/site
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


class Page(HTMLParser):
    """What a page refers to, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors = {"", "top"}
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := values.get(name))}
        if tag == "a" and (target := values.get("href")):
            self.links.append(target)
        if tag in LOADED and (target := values.get(LOADED[tag])):
            self.loaded.append(target)


def problems(site: Path) -> Iterator[str]:
    """Yield each link of the HTML files below *site* that leads nowhere, and each file that comes from elsewhere."""
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    for path, page in pages.items():
        for target in page.loaded:
            if urlsplit(target).netloc:
                yield f"{path.relative_to(site)}: loads {target} from elsewhere"
        for target in [*page.links, *page.loaded]:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not file.is_file():
                yield f"{path.relative_to(site)}: {target}: no such file"
            elif file in pages and unquote(parts.fragment) not in pages[file].anchors:
                yield f"{path.relative_to(site)}: {target}: no such anchor"
    yield from problems_of_copies(site)


def problems_of_copies(site: Path) -> Iterator[str]:
    """Yield each link of the Markdown files and of llms.txt below *site* that leads to no file."""
    for path in [*site.rglob("*.md"), *site.glob("llms.txt")]:
        prose = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", prose):
            parts = urlsplit(target)
            if not parts.netloc and parts.path and not (path.parent / unquote(parts.path)).exists():
                yield f"{path.relative_to(site)}: {target}: no such file"


def main() -> int:
    """Print the problems of the site; return 1 if there are any."""
    site = Path(sys.argv[1]).resolve()
    found = list(problems(site))
    pages = list(site.rglob("*.html"))
    print(
        "\n".join(found)
        or f"{len(pages)} pages: every link leads to a file and an anchor, and nothing is loaded from elsewhere"
    )
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
