"""Feed-forward networks of equal budgets, trained on five seeds: losses, units that died, swaps, dropout.

    python assets/evidence/08_networks.py        writes 08_budgets.csv, 08_dead.csv and 08_dropout.csv, resumable

Tuned: AdamW's rate, with the seeds GRID, for each network over RATES, with and without dropout over DROPOUT_RATES. The
best (the lowest held-out loss at any step) runs with all seeds. 08_dead.csv: one network, 100 steps at rates too high
on purpose, then MORE steps at an ordinary one.
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

SEEDS, GRID, CUT, PASSAGE = range(5), (0, 1), 180_000, 50
NETWORKS = {"no feed-forward": torch.nn.Identity,
            "MLP, ReLU": lambda: MLP(64, 256, "relu", bias=False),
            "MLP, GELU": lambda: MLP(64, 256, "gelu", bias=False),
            "SwiGLU": lambda: SwiGLU(64, 170)}
RATES, STOPS = ("0.003", "0.01", "0.03"), (100, 200, 400, 600, 1200)
DEADLY, MORE, REPAIR = (0.003, 0.05, 0.1), 500, 0.003
DROPOUT_RATES, DROPOUT_STOPS, FEW = ("0.0003", "0.001", "0.003"), (50, 100, 150, 200, 300, 600), 20_000


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
    return fit(Guesser(make()), windows, steps, lr, seen)


def fit(model, windows, steps, lr, seen=lambda model, step: None):
    adam = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)
    for step in range(1, steps + 1):
        loss = loss_of(model, windows[torch.randint(0, len(windows), (256,))])
        adam.zero_grad()
        loss.backward()
        adam.step()
        seen(model, step)
    return model


def curve(make, rate, seed, windows, held_out, stops):
    """The model after the last of the stops, and its held-out loss at each."""
    losses = []
    model = train(make, seed, windows, stops[-1], float(rate), lambda model, step: losses.append(
        held_out_loss(model, held_out)) if step in stops else None)
    return model, losses


def budgets(name, rate, seed, windows, held_out) -> list[str]:
    """The held-out loss at each of STOPS; with gate and up exchanged; the share of hidden numbers above 0."""
    model, losses = curve(NETWORKS[name], rate, seed, windows, held_out, STOPS)
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
    """Of 256 units, how many have slope 0 for every held-out input, and how many stay below 0.1; and how many of each
    kind still do after MORE steps at REPAIR, an ordinary rate."""
    model = train(lambda: MLP(64, 256, activation), seed, windows, 100, float(lr))
    before = steepest(model, activation, held_out)
    after = steepest(fit(model, windows, MORE, REPAIR), activation, held_out)
    return [f"{count.sum()}" for count in (before == 0, before < 0.1, (before == 0) & (after == 0),
                                           (before < 0.1) & (after < 0.1))]


def steepest(model, activation, held_out) -> torch.Tensor:
    """The largest slope of each hidden unit, over the held-out inputs."""
    with torch.no_grad():
        h = model.feed_forward.up(model.features(held_out[:, :8]))
    h.requires_grad_()
    ACTIVATIONS[activation](h).sum().backward()
    return h.grad.abs().amax(0)


def dropout(p, rate, seed, windows, held_out) -> list[str]:
    """On FEW windows: the loss on those at the end, in eval mode, and the held-out loss at each of DROPOUT_STOPS."""
    few = windows[:FEW]
    model, losses = curve(lambda: MLP(64, 1024, "relu", dropout=float(p)), rate, seed, few, held_out, DROPOUT_STOPS)
    return [f"{held_out_loss(model, few):.4f}", *(f"{loss:.4f}" for loss in losses)]


def best(name, rates, rows: list[list[str]], losses: slice) -> str:
    """The rate with the lowest held-out loss, at the step where it is lowest, in the mean of the grid's seeds."""
    def loss(rate):
        return sum(min(map(float, row[losses])) for row in rows
                   if row[:2] == [str(name), rate] and int(row[2]) in GRID)
    return min(rates, key=loss)


def tuned(file, columns, measure, names, rates, losses):
    """Every rate with the grid's seeds, then the best of each with the others."""
    table.resume(file, columns, [(name, rate, seed) for seed in GRID for name in names for rate in rates], measure)
    rows = table.read(file)
    table.resume(file, columns, [(name, best(name, rates, rows, losses), seed) for seed in SEEDS if seed not in GRID
                                 for name in names], measure)


def main() -> None:
    torch.set_num_threads(1)
    texts = text_windows()

    def rows_of(measure):
        return lambda *setting: [(*setting, *measure(*setting, *texts))]

    tuned(HERE / "08_budgets.csv", ["network", "rate", "seed", *(f"loss {n}" for n in STOPS), "swapped", "above 0"],
          rows_of(budgets), NETWORKS, RATES, slice(3, 3 + len(STOPS)))
    columns = ["activation", "rate", "seed", "slope 0", "below 0.1", "still 0", "still below"]
    table.resume(HERE / "08_dead.csv", columns, [
        (name, rate, seed) for seed in SEEDS for rate in DEADLY for name in ("relu", "gelu", "silu")], rows_of(dead))
    tuned(HERE / "08_dropout.csv", ["p", "rate", "seed", "training loss", *(f"held out {n}" for n in DROPOUT_STOPS)],
          rows_of(dropout), (0.0, 0.5), DROPOUT_RATES, slice(4, 4 + len(DROPOUT_STOPS)))


if __name__ == "__main__":
    main()
