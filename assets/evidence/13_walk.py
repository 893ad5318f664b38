"""Trains lesson 13's models from several seeds each, and writes 13_walk.csv.

    python assets/evidence/13_walk.py        (or: make evidence)

The ten models between GPT-2 and Qwen3, 400 steps each. **Tuned**: the learning rate, for each model by itself. From
0.003 it is doubled or halved, within RATES, until both neighbours are worse; what counts is last, of seed 0. At its
best rate each model is then trained from five seeds. Beside them, from five seeds each, stand a model with attention
that sees the future, for 100 steps at the rate of "wide heads", and the encoder-decoder that writes six letters
backwards. One row for each model, rate and seed. Rows that are there are kept, so a run that was stopped goes on. last
is the mean loss of the last 40 steps (backwards: 10), losses are means of 20 steps. On torch's kernels.
"""

import sys
from dataclasses import replace
from pathlib import Path
from unicodedata import ucd_3_2_0

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from given.torch_kernels import use_torch_kernels  # noqa: E402
from solutions.ex05_softmax import cross_entropy  # noqa: E402
from solutions.ex13_transformer import BASE_2017, EncoderDecoder, ModelConfig, Transformer  # noqa: E402

TABLE = HERE / "13_walk.csv"
COLUMNS = ["model", "rate", "seed", "last", "right", "losses"]
RATES = (0.00075, 0.0015, 0.003, 0.006, 0.012, 0.024)
SEEDS, TUNED_ON, FUTURE, BACKWARDS = range(5), range(1), "sees the future", "backwards"

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


def train(config: ModelConfig, rate: float, seed: int, steps: int = 400) -> list[float]:
    torch.manual_seed(seed)
    model, losses, length = use_torch_kernels(Transformer(config)), [], 48
    adam = torch.optim.Adam(model.parameters(), rate)
    for _ in range(steps):
        start = torch.randint(len(data) - length, (8, 1))
        batch = data[start + torch.arange(length + 1)]
        loss = cross_entropy(model(batch[:, :-1]), batch[:, 1:])
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return losses


def backwards(rate: float, seed: int) -> tuple[list[float], float]:
    """The losses, and which share of 200 new sources is written backwards without a mistake."""
    torch.manual_seed(seed)
    pair = EncoderDecoder(replace(
        BASE_2017, vocab_size=12, d_model=32, layers=1, heads=4, kv_heads=4, head_dim=8, d_ff=64, max_seq_len=16,
        dropout=0.0))
    adam, losses = torch.optim.Adam(pair.parameters(), rate), []
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


def measure(model: str, rate: float, seed: int, steps: int = 400) -> list[str]:
    """One row of the table."""
    right, last = "", 40
    if model == BACKWARDS:
        (losses, share), last = backwards(rate, seed), 10
        right = f"{share:.3f}"
    else:
        losses = train(configs()[model], rate, seed, 100 if model == FUTURE else steps)
    means = [sum(losses[i:i + 20]) / 20 for i in range(0, len(losses) - 19, 20)]
    return [model, str(rate), str(seed), f"{sum(losses[-last:]) / last:.4f}", right,
            " ".join(f"{loss:.3f}" for loss in means)]


def run(model: str, rate: float, seeds: range) -> float:
    return table.mean_loss(TABLE, COLUMNS, model, rate, seeds, measure, 3)


def tuned(model: str) -> float:
    return table.downhill(RATES, 0.003, lambda rate: run(model, rate, TUNED_ON))


def main() -> None:
    torch.set_num_threads(1)
    rates = {model: tuned(model) for model in CHANGES}
    for model, rate in (rates | {FUTURE: rates["wide heads"], BACKWARDS: 0.003}).items():
        run(model, rate, SEEDS)


if __name__ == "__main__":
    main()
