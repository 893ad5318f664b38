"""A small extension of Sphinx: KaTeX draws all equations while the site is built, so a reader needs no script.

One run of node draws them all. An equation that KaTeX cannot read is a warning.
"""

import json
import subprocess
from pathlib import Path

from docutils import nodes
from sphinx.errors import ExtensionError
from sphinx.util import logging

KATEX = Path(__file__).resolve().parent / "node_modules" / "katex" / "dist"
# Reads [[equation, whether on a line of its own], …]; writes [[HTML, or what is wrong with it], …]. Equations that
# \qquad parts stand side by side where there is room, and one below the other on a phone.
SCRIPT = """
const [, katexFile, output] = process.argv, katex = require(katexFile);
const all = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(all.map(([latex, displayMode]) => {
  const parts = displayMode ? latex.split("\\\\qquad") : [latex];
  try { return [parts.map(part => katex.renderToString(part, {displayMode, output})).join(" "), ""]; }
  catch (error) { return ["", error.message]; }
})));
"""
drawn: dict[tuple[str, bool], str] = {}


def _equation(node) -> tuple[str, bool]:
    return node.astext(), isinstance(node, nodes.math_block)


def _draw(app, env) -> None:
    """Draw every equation of the site, before its first page is written."""
    if app.builder.format != "html":
        return
    output = "mathml" if app.builder.name == "epub" else "htmlAndMathml"       # what EPUB 3 has for equations
    where = {_equation(node): (page, node) for page in env.all_docs
             for node in env.get_doctree(page).findall(lambda n: isinstance(n, (nodes.math, nodes.math_block)))}
    try:
        done = subprocess.run(["node", "-e", SCRIPT, str(KATEX / "katex.min.js"), output], check=True, text=True,
                              input=json.dumps(list(where)), capture_output=True, encoding="utf-8")
    except FileNotFoundError as error:
        raise ExtensionError("equations are drawn by KaTeX, which needs node: it is not installed") from error
    except subprocess.CalledProcessError as error:
        raise ExtensionError(f"KaTeX could not be run: {error.stderr.strip()}") from error
    for (equation, (page, node)), (html, wrong) in zip(where.items(), json.loads(done.stdout)):
        drawn[equation] = html.replace("<mo>\N{FUNCTION APPLICATION}</mo>", "")    # a third child where two may be
        if wrong:
            logging.getLogger(__name__).warning("%s: %s", wrong, equation[0], location=(page, node.line))


def _visit(self, node) -> None:
    tag = "div" if isinstance(node, nodes.math_block) else "span"
    self.body.append(f'{self.starttag(node, tag, "", CLASS="math")}{drawn[_equation(node)]}</{tag}>')
    raise nodes.SkipNode


def _copy_fonts(app, exception) -> None:
    """KaTeX's stylesheet looks for its fonts beside it; every browser since 2016 reads woff2."""
    if exception is None and app.builder.format == "html" and app.builder.name != "epub":
        target = Path(app.outdir, "_static", "fonts")
        target.mkdir(exist_ok=True)
        for font in (KATEX / "fonts").glob("*.woff2"):
            (target / font.name).write_bytes(font.read_bytes())


def setup(app) -> dict:
    app.add_html_math_renderer("katex", inline_renderers=(_visit, None), block_renderers=(_visit, None))
    if not app.tags.has("epub"):
        app.connect("config-inited", lambda app, config: config.html_static_path.append(str(KATEX / "katex.min.css")))
        app.add_css_file("katex.min.css")
    app.connect("env-updated", _draw)
    app.connect("build-finished", _copy_fonts)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
