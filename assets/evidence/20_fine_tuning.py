"""Teaches the pocket model lesson 20's format, in several ways and from five seeds, and writes 20_fine_tuning.csv.

    python assets/evidence/20_fine_tuning.py        (or: make evidence)

A row is one setting, one learning rate and one seed; rows that are there are kept, so a run that was stopped goes on.
The seed says which words are kept for the test, what the examples are, and where A starts. "right" counts examples
whose whole reply is what greedy decoding would write: each of its tokens is the likeliest one behind the right tokens
before it.
Bits per byte are measured on the passages that were written for the course. Rows of another pocket model are dropped.

What was tuned: the learning rate alone, over the grids in SETTINGS, by the answers that are right on new words. "LoRA
and the embedding" has two rates: A and B learn at LoRA's 0.002, the embedding at the best of all weights
(EMBEDDING_RATE). Seeds 0 and 1 for every rate, all five for those in SHOWN. Steps, batch, warm-up, decay of the rate
and alpha / rank = 2 are the same everywhere.
"""

import random
import re
import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from given.torch_kernels import use_torch_kernels  # noqa: E402
from solutions.ex14_training import AdamW, bits_per_byte, clip_grad_norm, evaluate, learning_rate  # noqa: E402
from solutions.ex16_pretrained import load_pretrained, load_tokenizer  # noqa: E402
from solutions.ex20_fine_tuning import add_lora, encode_chat, pack, sft_loss  # noqa: E402

TABLE, POCKET = HERE / "20_fine_tuning.csv", HERE.parent / "pocket"
COLUMNS = ["model", "setting", "rate", "seed", "trained", "loss", "right, new words", "right, trained words",
           "bits per byte", "losses"]
SEEDS, STEPS, TOKENS, SEQ, TEST = range(5), 60, 384, 96, 100
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate", "up", "down"]
HEADER, END = "Answer:", "<|endoftext|>"
TEMPLATE = """\
{% for message in messages %}
{% if message.role == 'user' %}
Question: {{ message.content }}
Answer:
{%- else %}
 {{ message.content }}<|endoftext|>
{%- endif %}
{% endfor %}"""
EMBEDDING = "embedding.weight"
# rank (None: no LoRA), whether the embedding learns, the learning rates that were tried
SETTINGS = {"base": (None, False, (0.0,)),
            "all weights": (None, True, (1e-4, 3e-4, 1e-3)),
            "all but the embedding": (None, False, (1e-4, 3e-4, 1e-3, 3e-3)),
            "LoRA": (8, False, (1e-3, 2e-3, 4e-3, 8e-3)),
            "LoRA, rank 1": (1, False, (2e-3, 4e-3, 8e-3, 1.6e-2)),
            "LoRA and the embedding": (8, True, (2e-3,)),
            "LoRA, every token": (8, False, (1e-3, 2e-3, 4e-3))}
EVERY = "LoRA, every token"         # the user's words and the template's are learnt, too
EMBEDDING_RATE = 3e-4
SHOWN = {("base", 0.0), ("all weights", 1e-4), ("all weights", 3e-4), ("all but the embedding", 3e-4),
         ("all but the embedding", 1e-3), ("LoRA", 1e-3), ("LoRA", 2e-3), ("LoRA", 4e-3), ("LoRA, rank 1", 8e-3),
         ("LoRA and the embedding", 2e-3), ("LoRA, every token", 2e-3)}


def words_of(tokenizer) -> list[str]:
    """Words that are one token with the space before them."""
    return sorted(token.decode()[1:] for token in tokenizer.vocab.values() if re.fullmatch(rb" [a-z]{4,8}", token))


def chat(rng: random.Random, words: list[str]) -> list[dict]:
    name, *arguments = rng.sample(words, rng.randint(2, 4))
    return [{"role": "user", "content": f"{name} {' and '.join(arguments)}"},
            {"role": "assistant", "content": f"{name} ( {', '.join(arguments)} )"}]


def example(tokenizer, rng, words):
    return encode_chat(tokenizer, chat(rng, words), TEMPLATE, HEADER, END)


def batch(tokenizer, rng, words, every=False):
    """As many examples as fit into TOKENS tokens, in rows of SEQ. every: all of their tokens are learnt."""
    examples, rows = [], TOKENS // SEQ
    while True:
        ids, learn = example(tokenizer, rng, words)
        examples.append((ids, [every or said for said in learn]))
        if len(pack(examples, SEQ).ids) > rows:
            return pack(examples[:-1], SEQ)


@torch.no_grad()
def test(model, packed) -> tuple[float, int]:
    """The loss on examples, and how many replies are right as a whole."""
    logits = model(packed.ids, packed.mask, packed.positions)
    wrong = (logits[:, :-1].argmax(-1) != packed.ids[:, 1:]) & packed.learn[:, 1:]
    number = (packed.positions == 0).cumsum(-1)[:, 1:]         # which example of its row a token is in
    failed = {(row, int(number[row, place])) for row, place in wrong.nonzero().tolist()}
    return sft_loss(logits, packed.ids, packed.learn).item(), TEST - len(failed)


def measure(setting: str, rate: float, seed: int, mark: str) -> dict:
    torch.manual_seed(seed)
    rng, tokenizer = random.Random(seed), load_tokenizer(POCKET)
    model = use_torch_kernels(load_pretrained(POCKET, dtype=torch.float32))
    words = words_of(tokenizer)
    rng.shuffle(words)
    new, known = words[:150], words[150:]
    tests = [pack([example(tokenizer, rng, which) for _ in range(TEST)], SEQ) for which in (new, known)]
    losses, count = [], 0
    if rate:
        rank, embedding, _ = SETTINGS[setting]
        if rank:
            add_lora(model, ALL, rank, 2 * rank)
        model.get_parameter(EMBEDDING).requires_grad_(embedding)
        learning = [p for p in model.parameters() if p.requires_grad]
        slow = [p for p in learning if rank and p is model.get_parameter(EMBEDDING)]
        fast = [p for p in learning if not any(p is other for other in slow)]
        groups = [{"params": fast, "top": rate}] + ([{"params": slow, "top": EMBEDDING_RATE}] if slow else [])
        optimizer, count = AdamW(groups, rate, weight_decay=0.0), sum(p.numel() for p in learning)
        for step in range(STEPS):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, 5, STEPS, group["top"], group["top"] / 20)
            packed = batch(tokenizer, rng, known, setting == EVERY)
            loss = sft_loss(model(packed.ids, packed.mask, packed.positions), packed.ids, packed.learn)
            optimizer.zero_grad()
            loss.backward()
            clip_grad_norm(learning, 1.0)
            optimizer.step()
            losses.append(loss.item())
    text = "\n".join((HERE.parent / name).read_text("utf-8") for name in ("passages.txt", "five_passages.txt"))
    ids = torch.tensor(tokenizer.encode(text))
    bits = bits_per_byte(evaluate(model, ids, 512), len(ids) - 1, len(text.encode()))
    (loss, right), (_, known_right) = (test(model, packed) for packed in tests)
    return dict(zip(COLUMNS, [mark, setting, str(rate), str(seed), str(count), f"{loss:.4f}", str(right),
                              str(known_right), f"{bits:.4f}", " ".join(f"{x:.4g}" for x in losses)], strict=True))


def runs() -> list[tuple]:
    """Setting, rate and seed of every row, in the table's order."""
    tried = [(name, rate) for name, (*_, rates) in SETTINGS.items() for rate in rates]
    return [(*run, seed) for run in tried for seed in SEEDS if seed < 2 or run in SHOWN]


def main() -> None:
    torch.set_num_threads(1)
    mark = table.mark(POCKET / "model.safetensors")
    table.resume(TABLE, COLUMNS, runs(), lambda *run: [measure(*run, mark).values()], mark)


if __name__ == "__main__":
    main()
