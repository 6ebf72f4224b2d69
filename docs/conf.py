"""The documentation site: `make docs`. The source is the repository itself, so that links work here as on GitHub."""

from __future__ import annotations

import os
import sys
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(DOCS), str(ROOT)]
# Pages that compute run in a kernel, which finds the same modules.
os.environ["PYTHONPATH"] = os.pathsep.join([str(DOCS), str(ROOT), os.environ.get("PYTHONPATH", "")])

from simcluster.version import __version__  # noqa: E402

project = "simcluster"
author = copyright = "simcluster contributors"  # noqa: A001
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
exclude_patterns = ["README.md", ".*", "build", "dist", "runs", "tests", "simcluster", "simcluster_backends"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 6
myst_links_external_new_tab = False
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "build" / "docs-cache")
nb_execution_excludepatterns = ["notebooks/*"]  # executed by their own command; shown as they are
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

default_role = "code"  # docstrings are written in Markdown
highlight_language = "none"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
nitpick_ignore_regex = [("py:.*", ".*")]  # types of other packages: the site needs no network
suppress_warnings = ["toc.empty_glob"]

html_theme = "furo"
html_title = "simcluster"
html_static_path = ["static"]
html_extra_path = ["support/root"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True
