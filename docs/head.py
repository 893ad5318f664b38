"""A small extension of Sphinx: one viewport in a page's head; a list of pages where the site's address is known.

Where it is not known, no page says where it lies.
"""

import re
from html import escape
from pathlib import Path
from urllib.parse import urljoin

VIEWPORT = re.compile(r'<meta name="viewport"[^>]*>\n?')        # the theme has its own
ADDRESS = re.compile(r'<meta property="og:url"[^>]*>\n?')
SITEMAP = '<?xml version="1.0" encoding="utf-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{}</urlset>'


def _tidy(app, page, template, context, tree) -> None:
    tags = VIEWPORT.sub("", context.get("metatags", ""))
    context["metatags"] = tags if app.config.html_baseurl else ADDRESS.sub("", tags)


def _list(app, exception) -> None:
    """Write the list of pages that machines read."""
    if exception is None and app.config.html_baseurl:
        pages = "".join(f"<url><loc>{escape(urljoin(app.config.html_baseurl, app.builder.get_target_uri(page)))}"
                        "</loc></url>\n" for page in sorted(app.env.found_docs))
        Path(app.outdir, "sitemap.xml").write_text(SITEMAP.format(pages), "utf-8")


def setup(app) -> dict:
    app.connect("html-page-context", _tidy, priority=900)       # after those who write them
    app.connect("build-finished", _list)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
