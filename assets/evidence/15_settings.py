"""What each way of choosing the next token does to the pocket model's texts: how much repeats, how probable it is.

    python assets/evidence/15_settings.py        writes 15_settings.csv, resumable

A row is one setting and one seed; each seed continues six prompts of its own. Rows of another pocket model are dropped.
The rows "the five passages" are those of assets/five_passages.txt, which were written for the course, one each.
"""

import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from solutions.ex15_generation import generate  # noqa: E402
from solutions.ex16_pretrained import load_pretrained, load_tokenizer  # noqa: E402

FILE, POCKET = HERE / "15_settings.csv", HERE.parent / "pocket"
COLUMNS = ["model", "setting", "seed", "repeated", "surprise", "tail"]
NEW, RUN, FRONT = 64, 4, 100        # new tokens a text, the length of a run, ranks that are not the tail
PASSAGES = "the five passages"
SETTINGS = [{"temperature": 0}, {"temperature": 0, "repetition_penalty": 1.3}, {"temperature": 0.5},
            {"temperature": 0.7}, {"temperature": 1}, {"temperature": 1.5},
            {"top_k": 10}, {"top_k": 40}, {"top_k": 100},
            {"top_p": 0.5}, {"top_p": 0.7}, {"top_p": 0.9}, {"min_p": 0.02}, {"min_p": 0.05}, {"min_p": 0.1}]
PROMPTS = [
    ["The for statement", "A class", "Return a list of", "If the file", "This function", "The string"],
    ["The while statement", "A method", "Return the number of", "If the object", "This module", "The list"],
    ["An iterator", "A dictionary", "Raise an exception", "When the program", "The argument", "The default"],
    ["The import statement", "A string", "Return true if", "If an error", "These methods", "The result"],
    ["An expression", "A generator", "Create a new", "When a class", "The following", "The value of"]]


def name_of(setting: dict) -> str:
    return ", ".join(f"{key} {value}" for key, value in setting.items())


@torch.no_grad()
def measure(model, start: list[int], new: list[int]) -> tuple[float, float, float]:
    """Share of 4-token runs that were there before, mean −ln p at temperature 1, share of tokens past rank 100."""
    text = start + new
    runs = [tuple(text[i:i + RUN]) for i in range(len(text) - RUN + 1)]
    first = max(len(start) - RUN + 1, 0)                   # runs that end in a new token
    again = [run in runs[:i] for i, run in enumerate(runs) if i >= first]
    scores = model(torch.tensor([text]))[0, len(start) - 1:-1].float().log_softmax(-1)
    chosen = scores[range(len(new)), new]
    ranks = (scores > chosen[:, None]).sum(-1)
    return (sum(again) / len(again), -chosen.mean().item(), (ranks >= FRONT).float().mean().item())


def row_of(model, tokenizer, setting: dict | None, seed: int) -> list[float]:
    if setting is None:
        ids = tokenizer.encode((HERE.parent / "five_passages.txt").read_text("utf-8").strip().split("\n\n")[seed])
        return list(measure(model, ids[:1], ids[1:]))
    prompts = [tokenizer.encode(prompt) for prompt in PROMPTS[seed]]
    rng = torch.Generator().manual_seed(seed)
    texts = generate(model, prompts, NEW, rng=rng, **setting)
    found = torch.tensor([measure(model, *pair) for pair in zip(prompts, texts, strict=True)])
    return found.mean(0).tolist()


def main() -> None:
    torch.set_num_threads(1)
    mark = table.mark(POCKET / "model.safetensors")
    model, tokenizer = load_pretrained(POCKET, dtype=torch.float32), load_tokenizer(POCKET)
    settings = {PASSAGES if setting is None else name_of(setting): setting for setting in [None, *SETTINGS]}

    def rows_of(name, seed):
        return [(mark, name, seed, *(f"{x:.4f}" for x in row_of(model, tokenizer, settings[name], seed)))]

    table.resume(FILE, COLUMNS, [(name, seed) for seed in range(len(PROMPTS)) for name in settings], rows_of, mark)


if __name__ == "__main__":
    main()
