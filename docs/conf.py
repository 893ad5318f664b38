"""Sphinx's settings for the site. No lesson is run but the cells of docs/moving.py; nothing comes from another host."""

import sys
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from grader.author import links  # noqa: E402

course = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

from docs.book import IDENTIFIER  # noqa: E402
from docs.pages import CITED  # noqa: E402

project = html_title = "Build a transformer"
version = course["version"]
author = "its authors"
copyright = "its authors, under the MIT license"
language = "en"
smartquotes = False                     # the lessons' own quotes

extensions = ["myst_nb", "sphinx_copybutton", "docs.equations", "docs.terms"]
if tags.has("html"):                    # noqa: F821
    extensions += ["docs.head", "docs.finish", "docs.moving", "docs.search", "notfound.extension",
                   "sphinx.ext.githubpages", "sphinxext.opengraph"]
html_math_renderer = "katex"

nb_execution_mode = "off"               # the outputs are those that were committed
nb_merge_streams = True
nb_code_prompt_show, nb_code_prompt_hide = "Show the code", "Hide the code"
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
myst_heading_slug_func = "docs.lessons.anchor"

# Where the site lies, if that is known: links to it, for machines, are whole addresses.
html_baseurl = f"{links.address('Documentation')}/".removeprefix("/")
ogp_site_url = html_baseurl
ogp_social_cards = {"enable": False}
notfound_urls_prefix = urlsplit(html_baseurl).path or "/"
notfound_context = {"title": "Page not found", "body": "<h1>Page not found</h1><p>There is no page at this address. "
                    f'<a href="{notfound_urls_prefix}index.html">The course begins here</a>.</p>'}

html_theme = "furo"
templates_path = ["templates"]
html_context = {"repository": links.address(), "author": author, "license": course["license"]}
html_static_path = ["static"]
html_css_files = ["site.css", "pocket.css"]
html_js_files = ["scroll.js", ("progress.js", {"defer": "defer"})]
html_favicon = "static/favicon.svg"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_use_index = False
html_theme_options = {"navigation_with_keys": True}

if tags.has("singlehtml") or tags.has("epub"):              # noqa: F821  the book
    html_theme = "basic"
    html_theme_options = {"nosidebar": True}
    html_js_files = []
    html_css_files = ["book.css", *["paper.css"] * tags.has("singlehtml")]      # noqa: F821
    extensions.remove("sphinx_copybutton")
    static = Path(__file__).parent / "static"
    epub_exclude_files = [f"_static/{file.relative_to(static).as_posix()}" for file in static.rglob("*.*")
                          if file.name not in ("book.css", "favicon.svg")]
    epub_theme_options = {"relbar1": False, "footer": False}
    epub_show_urls = "no"
    epub_author = epub_publisher = epub_contributor = CITED["name"]
    epub_description, epub_identifier, epub_scheme, epub_uid = CITED["abstract"], IDENTIFIER, "UUID", "book"
    epub_tocdup = False

copybutton_selector = "div.cell_input div.highlight pre, div[class*=highlight-]:not(.output) > div.highlight pre"


def _level(app, page, template, context, tree) -> None:
    """The captions of the contents say which headings they are, as a screen reader needs."""
    if "furo_navigation_tree" in context:
        context["furo_navigation_tree"] = context["furo_navigation_tree"].replace(
            'role="heading"', 'role="heading" aria-level="2"')


def setup(app) -> None:
    app.connect("html-page-context", _level, priority=900)       # after the theme's own
