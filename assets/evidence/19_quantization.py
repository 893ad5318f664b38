"""Bits per byte of the pocket model at 16, 8, 4, 3 and 2 bits, rounded plainly and by GPTQ, on five held-out texts.

    python assets/evidence/19_quantization.py            writes 19_quantization.csv, resumable
    python assets/evidence/19_quantization.py texts      writes 19_held_out.json, the five texts

A row is one setting and one text; GPTQ has five draws of the text that it calibrates on, which are topics of Python's
help() that the model was trained on. Another version of Python has other topics, and gives slightly other numbers.
The five texts are documents that were held out when the pocket model was trained (assets/pocket/text.py), the first
12,000 characters of each: docstrings of Python 3.11 (PSF License). Rows of another pocket model are dropped.
"""

import json
import sys
import sysconfig
from pathlib import Path
from pydoc_data.topics import topics

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from assets.pocket.text import docstrings, plain, unseen  # noqa: E402
from given.torch_kernels import use_torch_kernels  # noqa: E402
from solutions.ex14_training import bits_per_byte, evaluate  # noqa: E402
from solutions.ex16_pretrained import load_pretrained, load_tokenizer  # noqa: E402
from solutions.ex19_quantization import gptq_model, quantize_model  # noqa: E402

FILE, TEXTS, POCKET = HERE / "19_quantization.csv", HERE / "19_held_out.json", HERE.parent / "pocket"
COLUMNS = ["model", "bits", "method", "draw", "text", "bits per byte"]
GROUP, DRAWS, WINDOWS, SEQ = 64, range(5), 12, 512
HELD_OUT = ["topic formatstrings", "shutil.py", "http/cookiejar.py", "xmlrpc/server.py",
            "importlib/_bootstrap_external.py"]
SETTINGS = [(16, "plain", 0), *((bits, "plain", 0) for bits in (8, 4, 3, 2)),
            *((bits, "GPTQ", draw) for draw in DRAWS for bits in (8, 4, 3, 2))]


def write_texts() -> None:
    library, seen, texts = Path(sysconfig.get_path("stdlib")), set(), {}
    for name in HELD_OUT:
        found = ([plain(topics[name[6:]])] if name.startswith("topic ") else
                 docstrings((library / name).read_bytes()))
        texts[name] = "\n\n".join(unseen(found, seen))[:12_000]
    TEXTS.write_text(json.dumps(texts, indent=1) + "\n", "utf-8")


def calibration(tokenizer, draw: int) -> torch.Tensor:
    """WINDOWS windows of SEQ tokens from the topics of help(), without those that were held out."""
    names = sorted(set(topics) - {"formatstrings", "break"})
    tokens = torch.tensor(tokenizer.encode("\n\n".join(plain(topics[name]) for name in names)))
    starts = torch.randint(len(tokens) - SEQ, (WINDOWS,), generator=torch.Generator().manual_seed(draw))
    return torch.stack([tokens[start:start + SEQ] for start in starts.tolist()])


def quantized(tokenizer, bits: int, method: str, draw: int = 0):
    model = use_torch_kernels(load_pretrained(POCKET, dtype=torch.float32))
    if bits == 16:
        return model
    if method == "plain":
        return quantize_model(model, bits, GROUP)
    return gptq_model(model, calibration(tokenizer, draw), bits, GROUP)


def measure(model, tokenizer) -> dict[str, float]:
    """Bits per byte of each text."""
    found = {}
    for name, text in json.loads(TEXTS.read_text("utf-8")).items():
        ids = torch.tensor(tokenizer.encode(text))
        found[name] = bits_per_byte(evaluate(model, ids, SEQ), len(ids) - 1, len(text.encode()))
    return found


def main() -> None:
    torch.set_num_threads(1)
    mark, tokenizer = table.mark(POCKET / "model.safetensors"), load_tokenizer(POCKET)

    def rows_of(*setting):
        found = measure(quantized(tokenizer, *setting), tokenizer)
        return [(mark, *setting, name, f"{bits:.5f}") for name, bits in found.items()]

    table.resume(FILE, COLUMNS, SETTINGS, rows_of, mark)


if __name__ == "__main__":
    write_texts() if sys.argv[1:] == ["texts"] else main()
