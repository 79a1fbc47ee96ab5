"""Sphinx with MyST: `pip install -e '.[docs]' && sphinx-build -W -b html docs build/docs` (`-b linkcheck` for the links)."""

project = "loadgen"
author = "the loadgen authors"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
html_theme = "furo"
html_title = "loadgen"
html_show_copyright = False
myst_heading_anchors = 4
smartquotes = False  # they would make a dash of an option
# Links to files outside of docs/ are for readers of the repository (tests/docs checks all of them).
suppress_warnings = ["myst.xref_missing"]
exclude_patterns = ["_build"]
linkcheck_timeout = 20
linkcheck_ignore = [r"http://127\.0\.0\.1.*", r"http://localhost.*"]
