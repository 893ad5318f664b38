"""Trains the draft of lesson 24: a Llama of one layer that guesses what the pocket model will say.

    python assets/draft/train.py

It reads what Python itself brings: the docstrings of its library and the topics of help() (PSF License), which the
pocket model has read, too, nearly all of them. At each place it learns the 4,096 probabilities that the pocket model
gives there, not the text's own next token (distillation: Hinton et al., 2015, arXiv 1503.02531). It speaks the pocket
model's tokens, and its embedding begins as that model's, along the directions in which that varies most. The two
documents that lessons read, help("formatstrings") and shutil, are left out, with each line elsewhere that shares 50
characters with them. A run that is stopped goes on where its last checkpoint is.

What it writes beside this file is laid out as Hugging Face lays out a Llama. training.csv has the curve, measured on
what was left out: the mean of the sum of min(p, q), which is the chance that a token drawn from the draft is accepted,
and how often both find the same token likeliest.
"""

import csv
import json
import re
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.pocket.text import (  # noqa: E402
    ELSEWHERE,
    LESSONS,
    docstrings,
    hashes,
    joined_lines,
    normal,
    plain,
    unseen,
    without,
)
from assets.pocket.train import END, hf_names  # noqa: E402
from given.torch_kernels import use_torch_kernels  # noqa: E402
from solutions.ex13_transformer import POCKET, Transformer, count_parameters  # noqa: E402
from solutions.ex14_training import (  # noqa: E402
    AdamW,
    clip_grad_norm,
    get_batch,
    learning_rate,
    load_checkpoint,
    parameter_groups,
    save_checkpoint,
)
from solutions.ex16_pretrained import load_pretrained, load_tokenizer  # noqa: E402

TARGET, RUN = HERE.parent / "pocket", HERE / "run"
DRAFT = replace(POCKET, d_model=128, layers=1, heads=4, kv_heads=2, d_ff=256)
STEPS, WARMUP, BATCH, LENGTH = 2000, 50, 4, 128
PEAK, FLOOR, WEIGHT_DECAY = 4e-3, 1e-4, 0.1
EVERY = 200                                      # steps between rows of training.csv, and checkpoints
GLANCE = 1536                                    # held-out tokens that such a row is measured on


def held_out_texts() -> list[str]:
    """Those of LESSONS, which nothing is learnt from."""
    from pydoc_data.topics import topics
    library, seen = Path(sysconfig.get_path("stdlib")), set()
    return [text for name in sorted(LESSONS) for text in unseen(
        [plain(topics[name.removeprefix("topic ")])] if name.startswith("topic ") else
        docstrings((library / name).read_bytes()), seen)]


def texts_to_learn(held_out: list[str]) -> list[str]:
    """All others that Python brings, without the lines that share a passage of 50 characters with those held out."""
    from pydoc_data.topics import topics
    library, found = Path(sysconfig.get_path("stdlib")), {f"topic {name}": [plain(topics[name])] for name in topics}
    for path in sorted(library.rglob("*.py")):
        inside = path.relative_to(library)
        if not ELSEWHERE & set(inside.parts):
            found[str(inside)] = docstrings(path.read_bytes())
    seen = set(normal(paragraph) for text in held_out for paragraph in re.split(r"\n\s*\n", text))
    learnt = [text for name in sorted(found.keys() - LESSONS) for text in unseen(found[name], seen)]
    passages = np.unique(hashes(joined_lines(held_out)[0]))
    while (kept := list(without(learnt, passages))) != learnt:
        learnt = kept                            # lines that became neighbours may share one too
    return [text for text in learnt if len(text) >= 40]


def tokens() -> tuple[torch.Tensor, torch.Tensor]:
    """Both parts as tokens of the pocket model, each text ended by END; kept in RUN."""
    RUN.mkdir(exist_ok=True)
    if not (RUN / "tokens.pt").exists():
        tokenizer, held_out = load_tokenizer(TARGET), held_out_texts()
        torch.save([torch.tensor(tokenizer.encode("".join(text + END for text in part)), dtype=torch.int16)
                    for part in (texts_to_learn(held_out), held_out)], RUN / "tokens.pt")
    return tuple(torch.load(RUN / "tokens.pt"))


def new_draft(target: Transformer, seed: int = 0) -> Transformer:
    """A draft whose embedding begins as the target's, seen along the directions in which that varies most."""
    torch.manual_seed(seed)
    draft, matrix = use_torch_kernels(Transformer(DRAFT)), target.embedding.weight.detach()
    directions = torch.linalg.svd(matrix, full_matrices=False).Vh[:DRAFT.d_model]
    with torch.no_grad():
        draft.embedding.weight.copy_(matrix @ directions.T)
    return draft


@torch.no_grad()
def agreement(target: Transformer, draft: Transformer, held_out: torch.Tensor) -> tuple[float, float]:
    """The mean of the sum of min(p, q) over held-out places, and how often the likeliest tokens agree."""
    rows = held_out[:GLANCE].view(-1, LENGTH).long()
    both = [torch.cat([model(part) for part in rows.split(BATCH)]) for model in (target, draft)]
    p, q = (logits.softmax(-1) for logits in both)
    return torch.minimum(p, q).sum(-1).mean().item(), (p.argmax(-1) == q.argmax(-1)).float().mean().item()


def train(steps: int = STEPS, each=lambda step, draft: None) -> Transformer:
    """The draft after so many steps, from the last checkpoint where there is one."""
    learnt, held_out = tokens()
    target = use_torch_kernels(load_pretrained(TARGET, dtype=torch.float32)).eval()
    draft, rng, rows, start = new_draft(target), torch.Generator().manual_seed(0), [], 0
    optimizer = AdamW(parameter_groups(draft, WEIGHT_DECAY), PEAK, betas=(0.9, 0.95))
    checkpoint, log = RUN / "checkpoint", RUN / "training.csv"
    if checkpoint.exists():
        start = load_checkpoint(checkpoint, draft, optimizer, rng)
        rows = [row for row in csv.reader(log.open()) if row[0].isdigit() and int(row[0]) <= start]
    print(f"{count_parameters(DRAFT):,} parameters, {len(learnt):,} tokens; from step {start} to {steps}")
    recent = []
    for step in range(start, steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, WARMUP, STEPS, PEAK, FLOOR)
        inputs, _ = get_batch(learnt, BATCH, LENGTH, rng)
        with torch.no_grad():
            p = target(inputs).softmax(-1)
        loss = -(p * draft(inputs).log_softmax(-1)).sum(-1).mean()      # KL(p ‖ q), but for p's own entropy
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm(list(draft.parameters()), 1.0)
        optimizer.step()
        recent.append(loss.item())
        each(step + 1, draft)
        if (done := step + 1) % EVERY == 0 or done == steps:
            shared, same = agreement(target, draft, held_out)
            loss = sum(recent) / len(recent)
            rows.append([done, done * BATCH * LENGTH, f"{loss:.4f}", f"{shared:.4f}", f"{same:.4f}"])
            recent = []
            with log.open("w", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows([
                    ["step", "tokens", "loss", "held-out sum of min(p, q)", "held-out same likeliest"], *rows])
            save_checkpoint(checkpoint, draft, optimizer, done, rng)
            print(*rows[-1], flush=True)
    return draft


def export(draft: Transformer) -> None:
    """config.json and model.safetensors in bfloat16, as Hugging Face names a Llama's; the curve beside them."""
    state = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in hf_names(draft.state_dict()).items()
             if name != "lm_head.weight"}                # tied: saved once
    save_file(state, HERE / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((TARGET / "config.json").read_text()) | {
        "hidden_size": DRAFT.d_model, "num_hidden_layers": DRAFT.layers, "num_attention_heads": DRAFT.heads,
        "num_key_value_heads": DRAFT.kv_heads, "head_dim": DRAFT.head_dim, "intermediate_size": DRAFT.d_ff}
    (HERE / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (HERE / "training.csv").write_text((RUN / "training.csv").read_text())


if __name__ == "__main__":
    torch.set_num_threads(1)
    export(train())
