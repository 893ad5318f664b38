"""A small extension of Sphinx: one viewport in a page's head, and no address of a page whose site has none."""

import re

VIEWPORT = re.compile(r'<meta name="viewport"[^>]*>\n?')        # the theme has its own
ADDRESS = re.compile(r'<meta property="og:url"[^>]*>\n?')


def _tidy(app, page, template, context, tree) -> None:
    tags = VIEWPORT.sub("", context.get("metatags", ""))
    context["metatags"] = tags if app.config.html_baseurl else ADDRESS.sub("", tags)


def setup(app) -> dict:
    app.connect("html-page-context", _tidy, priority=900)       # after those who write them
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
