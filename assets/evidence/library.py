"""A larger text than help()'s topics alone, from what ships with Python: these and the standard library's docstrings.

Two megabytes, with every 30th document held out, whole. No passage of 50 characters of what is held out stands in what
is trained on: assets/pocket/text.py drops the lines that share one. Another version of Python has another text.
"""

import random
import sysconfig
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import torch

from assets.pocket.text import ELSEWHERE, docstrings, hashes, joined_lines, plain, shared, unseen, without

EVERY = 30


def documents() -> dict[str, list[str]]:
    """Each document's name and texts, in a fixed order: the topics, and the modules with all of their docstrings."""
    found = {f"topic {name}": [plain(topics[name])] for name in sorted(topics)}
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*.py")):
        if not ELSEWHERE & {*path.relative_to(library).parts} and (texts := docstrings(path.read_bytes())):
            found[str(path.relative_to(library))] = texts
    return found


@cache
def split() -> tuple[str, str]:
    """The text to train on and the text held out, shuffled by document."""
    found = documents()
    names = list(found)
    random.Random(0).shuffle(names)
    out, seen = {*names[::EVERY]}, set()
    held = [text for name in names if name in out for text in unseen(found[name], seen)]
    texts = [text for name in names if name not in out for text in unseen(found[name], seen)]
    passages = np.unique(hashes(joined_lines(held)[0]))
    while (kept := [*without(texts, passages)]) != texts:
        texts = kept                    # lines that became neighbours may share a passage, too
    assert shared(texts, held) == 0
    return "\n\n".join(texts), "\n\n".join(held)


@cache
def texts() -> tuple[torch.Tensor, torch.Tensor]:
    """Both as bytes."""
    return tuple(torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8) for text in split())
