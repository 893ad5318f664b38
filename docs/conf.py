"""Sphinx's settings for the site. Nothing is run, and nothing is loaded from another host."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
KATEX = HERE / "node_modules" / "katex" / "dist"
sys.path.insert(0, str(HERE.parent))

project = "Build a transformer"
html_title = project
language = "en"
smartquotes = False                     # the lessons' own quotes

extensions = ["myst_nb", "sphinx_copybutton", "sphinxcontrib.katex", "docs.terms"]

nb_execution_mode = "off"               # the outputs are those that were committed
nb_merge_streams = True
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 4
myst_heading_slug_func = "docs.lessons.anchor"

katex_prerender = True                  # equations need no script
katex_js_path = str(KATEX / "katex.min.js")
katex_css_path = "katex.min.css"

html_theme = "furo"
html_static_path = ["static", str(KATEX / "katex.min.css")]
html_css_files = ["site.css"]
html_favicon = "static/favicon.svg"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "monokai"
copybutton_selector = "div.cell_input div.highlight pre, div[class*=highlight-]:not(.output) > div.highlight pre"


def _copy_fonts(app, exception) -> None:
    """KaTeX's stylesheet looks for its fonts beside it; every browser since 2016 reads woff2."""
    if exception is None and app.builder.format == "html":
        target = Path(app.outdir, "_static", "fonts")
        target.mkdir(exist_ok=True)
        for font in (KATEX / "fonts").glob("*.woff2"):
            (target / font.name).write_bytes(font.read_bytes())


def setup(app) -> None:
    app.connect("build-finished", _copy_fonts)
