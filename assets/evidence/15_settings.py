"""What each way of choosing the next token does to a text of the pocket model: how much of it repeats, how probable it is.

    python assets/evidence/15_settings.py        writes 15_settings.csv, resumable

A row is one setting and one seed; each seed continues six prompts of its own. Rows of another pocket model are dropped.
The rows "written by a person" are the five passages of assets/five_passages.txt, one each.
"""

import csv
import hashlib
import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from solutions.ex15_generation import generate  # noqa: E402
from solutions.ex16_pretrained import load_pretrained, load_tokenizer  # noqa: E402

FILE, POCKET = HERE / "15_settings.csv", HERE.parent / "pocket"
COLUMNS = ["model", "setting", "seed", "repeated", "surprise", "tail"]
NEW, RUN, FRONT = 64, 4, 100        # new tokens a text, the length of a run, ranks that are not the tail
PERSON = "written by a person"
SETTINGS = [{"temperature": 0}, {"temperature": 0, "repetition_penalty": 1.3}, {"temperature": 0.5},
            {"temperature": 1}, {"temperature": 1.5}, {"top_k": 10}, {"top_p": 0.9}, {"min_p": 0.1}]
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
    mark = hashlib.sha256((POCKET / "model.safetensors").read_bytes()).hexdigest()[:8]
    model, tokenizer = load_pretrained(POCKET, dtype=torch.float32), load_tokenizer(POCKET)
    rows = list(csv.DictReader(FILE.open())) if FILE.exists() else []
    rows = [row for row in rows if row["model"] == mark]
    there = {(row["setting"], row["seed"]) for row in rows}
    todo = [(setting, seed) for seed in range(len(PROMPTS)) for setting in [None, *SETTINGS]]
    for done, (setting, seed) in enumerate(todo, 1):
        name = PERSON if setting is None else name_of(setting)
        if (name, str(seed)) not in there:
            found = row_of(model, tokenizer, setting, seed)
            rows.append(dict(zip(COLUMNS, (mark, name, seed, *(f"{x:.4f}" for x in found)), strict=True)))
            with FILE.open("w", newline="") as out:
                writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
        print(f"\r15_settings: {done} of {len(todo)}", end="", flush=True)
    print()


if __name__ == "__main__":
    main()
