"""Checks that every page has to pass: it fits the window, every text stands out, every control has a name."""

from __future__ import annotations

from tests.support.devtools import Page

LOOKS = ((1280, False), (1280, True), (390, False), (390, True))

TOO_FAINT = """(() => {
  const rgb = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const linear = (c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const found = rgb(getComputedStyle(node).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const isText = (node) => node.checkVisibility() && !node.closest('svg, :disabled, option')
    && [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
  return [...document.querySelectorAll('body *')].filter(isText).map((node) => {
    const [a, b] = [light(rgb(getComputedStyle(node).color)), light(behind(node))];
    return [node.outerHTML.slice(0, 80), (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
  }).filter(([, ratio]) => ratio < 4.5);
})()"""
"""Texts with less contrast than WCAG AA asks for, as 2.1 defines it."""

UNNAMED = """[...document.querySelectorAll('.js-plotly-plot, svg[role], input, select, textarea, button, table')]
    .filter((node) => node.checkVisibility() && !node.closest('.js-plotly-plot svg')
        && !node.getAttribute('aria-label') && !node.labels?.length && !node.textContent.trim())
    .map((node) => node.outerHTML.slice(0, 99))"""


def check_looks(tab: Page) -> None:
    """Nothing is wider than the window, every text stands out, every figure and control has a name."""
    for width, dark in LOOKS:
        tab.look(width, dark=dark)
        # A figure follows the window a moment later.
        tab.wait_for(f"window.innerWidth === {width} && document.documentElement.scrollWidth <= {width}")
        assert tab.ask(TOO_FAINT) == [], (width, dark)
    assert tab.ask(UNNAMED) == []
