"""Trains lesson 13's models from several seeds each, and writes 13_walk.csv.

    python assets/evidence/13_walk.py        (or: make evidence)

One row for each model and seed: the ten models between GPT-2 and Qwen3, one of them with attention that sees the
future, and the encoder-decoder that writes six letters backwards. Rows that are there are kept, so a run that was
stopped goes on. last is the mean loss of the last 10 steps, losses are means of 5 steps.
"""

import sys
from dataclasses import replace
from pathlib import Path
from unicodedata import ucd_3_2_0

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from solutions.ex05_softmax import cross_entropy  # noqa: E402
from solutions.ex13_transformer import BASE_2017, EncoderDecoder, ModelConfig, Transformer  # noqa: E402

TABLE = HERE / "13_walk.csv"
COLUMNS = ["model", "seed", "last", "right", "losses"]
SEEDS, FUTURE, BACKWARDS = range(5), "sees the future", "backwards"

names = [ucd_3_2_0.name(chr(n), "") for n in range(0x20, 0x2600)]
text = "\n".join(name for name in names if name)
letters = sorted(set(text))
data = torch.tensor([letters.index(letter) for letter in text])
GPT2 = ModelConfig(
    vocab_size=len(letters), d_model=48, layers=2, heads=4, d_ff=192, max_seq_len=64, norm="layer",
    feed_forward="mlp", activation="gelu_tanh", positions="learned", qkv_bias=True, o_bias=True, mlp_bias=True,
    tie_embeddings=True)
CHANGES = {
    "GPT-2": {},
    "RMSNorm": {"norm": "rms"},
    "RoPE": {"positions": "rope"},
    "SwiGLU": {"feed_forward": "swiglu", "d_ff": 128, "mlp_bias": False},
    "no biases": {"qkv_bias": False, "o_bias": False},
    "grouped heads": {"kv_heads": 2},
    "untied (Llama 3)": {"tie_embeddings": False},
    "QK-norm": {"qk_norm": True},
    "wide heads": {"head_dim": 24},
    "tied (Qwen3)": {"tie_embeddings": True},
}


def configs() -> dict[str, ModelConfig]:
    made, config = {}, GPT2
    for name, change in CHANGES.items():
        made[name] = config = replace(config, **change)
    return made | {FUTURE: replace(made["wide heads"], causal=False)}


def train(config: ModelConfig, seed: int, steps: int = 50, length: int = 48, rows: int = 8) -> list[float]:
    torch.manual_seed(seed)
    model, losses = Transformer(config), []
    adam = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(steps):
        start = torch.randint(len(data) - length, (rows, 1))
        batch = data[start + torch.arange(length + 1)]
        loss = cross_entropy(model(batch[:, :-1]), batch[:, 1:])
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return losses


def backwards(seed: int) -> tuple[list[float], float]:
    """The losses, and which share of 200 new sources is written backwards without a mistake."""
    torch.manual_seed(seed)
    pair = EncoderDecoder(replace(
        BASE_2017, vocab_size=12, d_model=32, layers=1, heads=4, kv_heads=4, head_dim=8, d_ff=64, max_seq_len=16,
        dropout=0.0))
    adam, losses = torch.optim.Adam(pair.parameters(), 3e-3), []
    start = torch.zeros(32, 1, dtype=torch.int64)
    for _ in range(161):
        source = torch.randint(2, 12, (32, 6))
        target = source.flip(1)
        loss = cross_entropy(pair(source, torch.cat([start, target[:, :-1]], 1)), target)
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    source, written = torch.randint(2, 12, (200, 6)), torch.zeros(200, 1, dtype=torch.int64)
    with torch.no_grad():
        memory = pair.encode(source)
        for _ in range(6):
            best = pair.decode(written, memory)[:, -1:].argmax(-1)
            written = torch.cat([written, best], 1)
    return losses, (written[:, 1:] == source.flip(1)).all(1).float().mean().item()


def measure(model: str, seed: int) -> dict:
    losses, right = backwards(seed) if model == BACKWARDS else (train(configs()[model], seed), None)
    means = [sum(losses[i:i + 5]) / 5 for i in range(0, len(losses) - 4, 5)]
    return dict(zip(COLUMNS, [model, str(seed), f"{sum(losses[-10:]) / 10:.4f}",
                              "" if right is None else f"{right:.3f}",
                              " ".join(f"{loss:.3f}" for loss in means)], strict=True))


def main() -> None:
    torch.set_num_threads(1)
    table.resume(TABLE, COLUMNS, [(model, seed) for seed in SEEDS for model in (*configs(), BACKWARDS)],
                 lambda *setting: [measure(*setting).values()])


if __name__ == "__main__":
    main()
