"""Feed-forward networks of equal budgets, trained on five seeds: losses, units that died, swaps, dropout.

    python assets/evidence/08_networks.py        writes 08_budgets.csv, 08_dead.csv and 08_dropout.csv, resumable

The text is what Python's help() says, so another version of Python has slightly other numbers.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from solutions.ex03_linear import Linear  # noqa: E402
from solutions.ex08_feedforward import ACTIVATIONS, MLP, SwiGLU  # noqa: E402

SEEDS, CUT, PASSAGE = range(5), 180_000, 50
NETWORKS = {"no feed-forward": torch.nn.Identity,
            "MLP, ReLU": lambda: MLP(64, 256, "relu", bias=False),
            "MLP, GELU": lambda: MLP(64, 256, "gelu", bias=False),
            "SwiGLU": lambda: SwiGLU(64, 170)}
STOPS = (100, 200, 300, 400, 500, 600)
RATES, FEW = (0.003, 0.05, 0.1), 20_000


def text_windows() -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of 8 letters and the next: for training, and held out without passages that stand in training."""
    from pydoc_data.topics import topics
    text = "\n".join(topics[name] for name in sorted(topics))[:200_000]
    rows = torch.tensor(list(text.encode("ascii", "replace"))).unfold(0, 9, 1)
    known = {text[i:i + PASSAGE] for i in range(CUT - PASSAGE)}
    copied = {i + j for i in range(CUT, len(text) - PASSAGE + 1) if text[i:i + PASSAGE] in known
              for j in range(PASSAGE)}
    fresh = [i for i in range(CUT, len(rows)) if not copied & {i, i + 8}]
    return rows[:CUT - 8], rows[fresh[::4]]


class Guesser(torch.nn.Module):
    """8 letters' vectors in a row, plus what a feed-forward network makes of them, to the next letter."""

    def __init__(self, feed_forward):
        super().__init__()
        self.letters = torch.nn.Embedding(128, 8)
        self.feed_forward = feed_forward
        self.out = Linear(64, 128)

    def features(self, ids):
        return self.letters(ids).flatten(-2)

    def forward(self, ids):
        x = self.features(ids)
        return self.out(x + self.feed_forward(x))


def loss_of(model, rows):
    return F.cross_entropy(model(rows[:, :8]), rows[:, 8])


@torch.no_grad()
def held_out_loss(model, rows) -> float:
    model.eval()
    loss = loss_of(model, rows).item()
    model.train()
    return loss


def train(make, seed, windows, steps, lr=3e-3, seen=lambda model, step: None):
    torch.manual_seed(seed)
    model = Guesser(make())
    adam = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)
    for step in range(1, steps + 1):
        loss = loss_of(model, windows[torch.randint(0, len(windows), (256,))])
        adam.zero_grad()
        loss.backward()
        adam.step()
        seen(model, step)
    return model


def budgets(name, seed, windows, held_out) -> list[str]:
    """The held-out loss at each of STOPS; with gate and up exchanged; the share of hidden numbers above 0."""
    losses = []
    model = train(NETWORKS[name], seed, windows, STOPS[-1], seen=lambda model, step: losses.append(
        held_out_loss(model, held_out)) if step in STOPS else None)
    swapped = above = ""
    network = model.feed_forward
    if name == "SwiGLU":
        network.gate, network.up = network.up, network.gate
        swapped = f"{held_out_loss(model, held_out):.4f}"
    if name == "MLP, ReLU":
        with torch.no_grad():
            above = f"{(network.up(model.features(held_out[:, :8])) > 0).float().mean():.4f}"
    return [*(f"{loss:.4f}" for loss in losses), swapped, above]


def dead(activation, lr, seed, windows, held_out) -> list[str]:
    """Of 256 units, how many have slope 0 for every held-out input, and how many stay below 0.1."""
    model = train(lambda: MLP(64, 256, activation), seed, windows, 100, float(lr))
    with torch.no_grad():
        h = model.feed_forward.up(model.features(held_out[:, :8]))
    h.requires_grad_()
    ACTIVATIONS[activation](h).sum().backward()
    best = h.grad.abs().amax(0)
    return [f"{(best == 0).sum()}", f"{(best < 0.1).sum()}"]


def dropout(p, seed, windows, held_out) -> list[str]:
    """Losses after 600 steps on FEW windows, in eval mode: on those, and held out."""
    few = windows[:FEW]
    model = train(lambda: MLP(64, 1024, "relu", dropout=float(p)), seed, few, 600)
    return [f"{held_out_loss(model, few):.4f}", f"{held_out_loss(model, held_out):.4f}"]


def main() -> None:
    torch.set_num_threads(1)
    windows, held_out = text_windows()
    jobs = [(HERE / "08_budgets.csv", ["network", "seed", *(f"loss {n}" for n in STOPS), "swapped", "above 0"],
             budgets, [(name, seed) for seed in SEEDS for name in NETWORKS]),
            (HERE / "08_dead.csv", ["activation", "rate", "seed", "slope 0", "below 0.1"],
             dead, [(name, rate, seed) for seed in SEEDS for rate in RATES for name in ("relu", "gelu", "silu")]),
            (HERE / "08_dropout.csv", ["p", "seed", "training loss", "held-out loss"],
             dropout, [(p, seed) for seed in SEEDS for p in (0.0, 0.5)])]
    for file, columns, measure, todo in jobs:
        table.resume(file, columns, todo, lambda *setting, measure=measure: [
            (*setting, *measure(*setting, windows, held_out))])


if __name__ == "__main__":
    main()
