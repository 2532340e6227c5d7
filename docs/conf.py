"""Settings of the documentation; `make docs` builds it."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The extension that `make` builds lies in the source tree, so the API pages need no second installation.
sys.path.insert(0, str(ROOT / "python"))

project = "Grampus"
author = "the Grampus authors"
project_copyright = "the Grampus authors"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_typehints = "description"
autodoc_member_order = "bysource"

html_theme = "furo"
html_title = "Grampus"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["tables.css"]
