"""The pocket model in the reader's own browser: its files, written by lesson 19's code, and its place on a page."""

import re
import shutil
from pathlib import Path

import torch

from grader.course.chapters import ROOT, chapters

POCKET = ROOT / "assets" / "pocket"
HERE = Path(__file__).resolve().parent
LINK = re.compile(r'<a href="(\d\d)">(.*?)</a>')
FILES = "_static/pocket"                    # of the site, beside the scripts
BITS, GROUP = (8, 4), 32                    # what the reader may choose from, the first at the start


def write(folder: Path) -> None:
    """Write the weights, pocket-8.safetensors and pocket-4.safetensors, and the tokenizer into a folder."""
    from solutions.ex16_pretrained import load_pretrained
    from solutions.ex19_quantization import quantize_model, save

    folder.mkdir(parents=True, exist_ok=True)
    for bits in BITS:
        model = load_pretrained(POCKET, dtype=torch.bfloat16)
        file = folder / f"pocket-{bits}.safetensors"
        save(quantize_model(model, bits, GROUP), file)
        file.chmod(0o644)                   # safetensors lets nobody else read it
    shutil.copy(POCKET / "tokenizer.json", folder)


def place(model: Path) -> str:
    """Its place on the front page, as HTML without an empty line, not shown without scripts. model: as for write."""
    sizes = {bits: (model / f"pocket-{bits}.safetensors").stat().st_size for bits in BITS}
    choice = "".join(
        f'<label><input type="radio" name="bits" value="{bits}" data-bytes="{size}"{" checked" * (bits == BITS[0])}>'
        f" {bits} bits ({size / 1e6:.1f} MB)</label>" for bits, size in sizes.items())
    names = {chapter.number: f"notebooks/{chapter.notebook.stem}.html" for chapter in chapters()}
    html = LINK.sub(lambda link: f'<a href="{names[link[1]]}">{link[2]}</a>' if link[1] in names else link[2],
                    (HERE / "pocket.html").read_text("utf-8"))
    return html.replace("{files}", FILES).replace("{choice}", choice).rstrip()
