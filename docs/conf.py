"""The documentation site: `make docs`. The source is the repository itself, so that links work here as on GitHub."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(DOCS), str(ROOT)]
# Pages that compute run in a kernel, which finds the same modules.
os.environ["PYTHONPATH"] = os.pathsep.join([str(DOCS), str(ROOT), os.environ.get("PYTHONPATH", "")])

# Kernels have a profile of the build, not the user's, and print errors only.
profile = ROOT / "build" / "ipython" / "profile_default"
profile.mkdir(parents=True, exist_ok=True)
(profile / "ipython_kernel_config.py").write_text("get_config().IPKernelApp.log_level = 40\n", encoding="utf-8")
os.environ["IPYTHONDIR"] = str(profile.parent)
logging.getLogger("traitlets").setLevel(logging.WARNING)

from simcluster.version import __version__  # noqa: E402

project = "simcluster"
author = copyright = "simcluster contributors"
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx_design",
    "sphinx_copybutton",
    "support.sources",
    "support.copies",
]
root_doc = "docs/index"
include_patterns = ["docs/**.md", "notebooks/*.ipynb", "experiments/LOG.md", "*.md"]
exclude_patterns = ["README.md", ".*", "build", "dist", "runs", "tests", "tools", "simcluster", "backends"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 6
myst_links_external_new_tab = False
# Every number is computed by every build. A draft computes what changed on its page, not what changed in the code.
nb_execution_mode = "cache" if os.environ.get("DRAFT") else "force"
nb_execution_cache_path = str(ROOT / "build" / "docs-cache")
nb_execution_excludepatterns = ["notebooks/*"]  # executed by their own command; shown as they are
nb_execution_show_tb = True
nb_execution_timeout = 600
nb_merge_streams = True
nb_code_prompt_show = nb_code_prompt_hide = "How the numbers are computed"

default_role = "code"  # docstrings are written in Markdown
highlight_language = "none"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
nitpick_ignore_regex = [("py:.*", ".*")]  # types of other packages: the site needs no network

html_theme = "furo"
html_title = "simcluster"
_MONOSPACE = 'ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace'
_SANS = 'system-ui, -apple-system, "Segoe UI", Roboto, sans-serif'
html_theme_options = {  # the colours of the product's pages: simcluster/web/page/base.css
    "light_css_variables": {
        "font-stack": _SANS,
        "font-stack--monospace": _MONOSPACE,
        "color-brand-primary": "#27709f",
        "color-brand-content": "#27709f",
        "color-brand-visited": "#27709f",
        "color-foreground-primary": "#1b2430",
        "color-foreground-secondary": "#5b6875",
        "color-background-secondary": "#f5f6f8",
        "color-background-border": "#dfe3e8",
        "color-code-background": "#f0f2f5",
    },
    "dark_css_variables": {
        "color-brand-primary": "#5aa6dc",
        "color-brand-content": "#5aa6dc",
        "color-brand-visited": "#5aa6dc",
        "color-foreground-primary": "#e6eaee",
        "color-foreground-secondary": "#9aa7b4",
        "color-background-primary": "#12161b",
        "color-background-secondary": "#1b2128",
        "color-background-border": "#303943",
        "color-code-background": "#1b2128",
    },
}
html_static_path = ["static"]
html_extra_path = ["support/root"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True
