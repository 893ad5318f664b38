"""A small extension of Sphinx: the first time a lesson's text uses a word of the glossary, the word is a link."""

import re

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

from docs.glossary import table

# Words are left alone where they are code, a heading, part of a link or a table, or the page is no lesson.
KEPT = (nodes.title, nodes.reference, nodes.literal, nodes.literal_block, nodes.raw, nodes.math, nodes.math_block,
        nodes.table, nodes.image, addnodes.pending_xref, addnodes.download_reference)

# Words that mean something else, too: they are linked in the lesson that explains them, and in no other.
EVERYDAY = {"advantage", "capacity", "clipping", "gate", "head", "key", "reward", "value", "view"}


class Terms(SphinxTransform):
    """Links the first use of each term."""

    default_priority = 700

    def apply(self, **options) -> None:
        if not self.env.docname.startswith("notebooks/"):
            return
        here = self.env.docname.removeprefix("notebooks/")[:2]
        words = {word.lower(): word for word, (lesson, _) in table()["terms"].items()
                 if word not in EVERYDAY or lesson == here}
        longest = sorted(words, key=len, reverse=True)
        pattern = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, longest))})s?(?![\w-])", re.I)
        for text in list(self.document.findall(nodes.Text)):
            if _inside(text, KEPT):
                continue
            made, end = [], 0
            for found in pattern.finditer(text):
                word = words.pop(found[1].lower(), None)
                if word is None:
                    continue
                made += [nodes.Text(text[end:found.start()]), _link(word, found[0], self.env.docname)]
                end = found.end()
            if made:
                text.parent.replace(text, [*made, nodes.Text(text[end:])])


def _inside(node, kinds) -> bool:
    while node is not None:
        if isinstance(node, kinds):
            return True
        node = node.parent
    return False


def _link(word: str, shown: str, page: str):
    return addnodes.pending_xref("", nodes.inline("", shown, classes=["term"]), refdomain="std", reftype="term",
                                 reftarget=word, refexplicit=True, refwarn=True, refdoc=page)


def setup(app) -> dict:
    app.add_transform(Terms)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
