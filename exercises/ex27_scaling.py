"""Scaling: spending a budget well.

A better step (Muon), a schedule that can be stopped anywhere (WSD), a learning rate that a small model finds for a
large one (μP), a law that tells the loss of a run before it is made, and how large a batch is worth its tokens.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict
from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from given.sizes import widen

from .ex02_embedding import Unembedding
from .ex13_transformer import ModelConfig, Transformer
from .ex14_training import AdamW

COEFFICIENTS = 3.4445, -4.7750, 2.0315          # a, b, c of Newton–Schulz: Jordan et al., 2024
SHAPES = "original", "match_rms_adamw"          # how Muon's rate depends on a matrix's shape


def must_be_positive(**given: float | Tensor) -> None:
    """Given: raise ValueError naming the argument that is not, in every number, finite and above 0."""
    for name, x in given.items():
        if not isinstance(x, Tensor):
            x = torch.tensor(float(x), dtype=torch.float64)     # 6 n d of a large model is past int64
        if not ((x > 0) & x.isfinite()).all():
            raise ValueError(f"{name} must be above 0 and finite, got {x.tolist()}")


def must_not_be_negative(**given: float) -> None:
    """Given: raise ValueError naming the argument that is below 0, or NaN."""
    for name, value in given.items():
        if not value >= 0:
            raise ValueError(f"{name} must be at least 0, got {value}")


# -- Muon: a step that treats all directions of a matrix alike

def newton_schulz(matrix: Float[Tensor, "*batch rows columns"], steps: int = 5) -> Float[Tensor, "*batch rows columns"]:
    """Bring all singular values of a matrix near 1, and leave its singular vectors: U S Vᵀ becomes about U Vᵀ.

    X = matrix / ‖matrix‖, the Frobenius norm, at least 10⁻⁷ and computed in at least float32. Then, `steps` times,

        A = X Xᵀ,    X ← a X + (b A + c A²) X,    with a, b, c = COEFFICIENTS.

    A matrix that is taller than wide is transposed before and after, so that A is the smaller of the two squares. Every
    singular value s becomes a s + b s³ + c s⁵, the same odd polynomial for all: with these coefficients it lifts small
    ones quickly, and then wanders between about 0.7 and 1.2 instead of coming to rest at 1. The products are computed
    in the dtype of the matrix. Matrices of a batch go each by itself; one of zeros stays zeros.

    Raises ValueError naming steps where it is below 0. Jordan et al., 2024 (kellerjordan.github.io/posts/muon).

    To be written here: torch's svd, matrix_power and _zeropower_via_newtonschulz are not used.
    """
    raise NotImplementedError


def shape_factor(rows: int, columns: int, shape: str = "original") -> float:
    """What Muon's learning rate is multiplied by for a (rows, columns) matrix, so that one rate serves all shapes.

    "original": √max(1, rows / columns), Jordan's: an output of a tall matrix changes as much as one of a square.
    "match_rms_adamw": 0.2 · √max(rows, columns). A matrix of rank min(rows, columns) whose singular values are 1 has
    numbers of the size 1 / √max(rows, columns), and a step of AdamW numbers of about 0.2: so rates tuned for AdamW
    are meant to serve Muon, too (not in lesson 27's run). Liu et al., 2025 (arXiv 2502.16982).

    Raises ValueError naming shape where it is neither.
    """
    raise NotImplementedError


class Muon(torch.optim.Optimizer):
    """Momentum whose every step is made orthogonal: for matrices only.

    For a parameter p with the gradient g and the momentum m, which starts as zeros:

    m ← momentum · m + (1 − momentum) · g
    u = (1 − momentum) · g + momentum · m   with nesterov, else m
    p ← p − lr · weight_decay · p
    p ← p − lr · shape_factor(p's shape) · newton_schulz(u, steps)

    The state of p is a dict of m. dtype: what newton_schulz computes in, such as torch.bfloat16; None for that of p.
    Options may differ by parameter group.

    Raises ValueError, naming the argument, where lr, weight_decay or steps is below 0, momentum is not in [0, 1), shape
    is unknown, or one of params has not two axes. Jordan et al., 2024 (kellerjordan.github.io/posts/muon).

    To be written here: torch's Muon is not used.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-3,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
        nesterov: bool = True,
        steps: int = 5,
        shape: str = "original",
        dtype: torch.dtype | None = None,
    ):
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure: Callable | None = None) -> Tensor | float | None:
        """Move every parameter that has a gradient.

        closure: called first, with gradients on, where it is given; its loss is returned.
        """
        raise NotImplementedError


def hidden_matrices(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that Muon is for, by their names in the model: those with two axes inside model.blocks.

    In the model's order. They turn a vector of features into another. Embedding and unembedding do not, since one side
    of theirs is the vocabulary, whose rows have nothing to do with one another; norm weights and biases are no
    matrices: all of these are AdamW's.
    """
    raise NotImplementedError


class Together:
    """Given: several optimizers as one, for train_step: it has their param_groups, in order, and steps them all.

    save_checkpoint and load_checkpoint take it, too.
    """

    def __init__(self, *optimizers: torch.optim.Optimizer):
        self.optimizers = optimizers

    @property
    def param_groups(self) -> list[dict]:
        """The groups of all, as one list."""
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    def zero_grad(self) -> None:
        """Drop all gradients."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def step(self) -> None:
        """A step of each."""
        for optimizer in self.optimizers:
            optimizer.step()

    def state_dict(self) -> dict:
        """The state of each, and the groups of all, by which a checkpoint knows whose it is."""
        states = [optimizer.state_dict() for optimizer in self.optimizers]
        return {"param_groups": [group for state in states for group in state["param_groups"]], "each": states}

    def load_state_dict(self, state: dict) -> None:
        """Give each its state back."""
        for optimizer, own in zip(self.optimizers, state["each"], strict=True):
            optimizer.load_state_dict(own)


def muon_and_adamw(
    model: nn.Module, muon_lr: float, adamw_lr: float, weight_decay: float = 0.1, **options
) -> Together:
    """Muon for the hidden_matrices of a model, AdamW for all its other parameters.

    Muon has muon_lr, weight_decay and options (shape, momentum …). AdamW has adamw_lr, betas of (0.9, 0.95), and two
    groups, as parameter_groups has them: what has two axes or more, with weight_decay, and vectors, without. Each
    parameter is in one group, a tied matrix too.
    """
    raise NotImplementedError


# -- WSD: a schedule whose end need not be known

def wsd(
    step: int, warmup: int, decay: int, total: int, peak: float, floor: float = 0.0, fall: str = "linear"
) -> float:
    """The learning rate of a step, the first being step 0: warm-up, stable, decay.

    step < warmup: peak · (step + 1) / warmup. Then peak, up to step total − decay. From there on it falls, with
    t = (step − (total − decay)) / decay, to floor: fall "linear": peak − (peak − floor) · t; "sqrt": peak −
    (peak − floor) · √t. From total on: floor. Until the decay nothing depends on total: a run of the stable part can
    be decayed from any of its steps, or go on.

    Raises ValueError, naming the argument, where step, warmup or decay is below 0, total is below warmup + decay, floor
    is not in 0 … peak, or fall is unknown. Hu et al., 2024 (arXiv 2404.06395); "sqrt": Hägele et al., 2024 (arXiv
    2405.18392).

    To be written here: torch's LinearLR, LambdaLR, SequentialLR and transformers' schedule are not used.
    """
    raise NotImplementedError


# -- μP: the learning rate of a small model for a large one

def width_ratio(config: ModelConfig, base: ModelConfig) -> float:
    """How many times as wide as base a model is: m = d_model / base.d_model, if it is wider in every part.

    d_ff, heads and kv_heads must be m times those of base. vocab_size, layers and head_dim must be those of base: with
    head_dim fixed, scores of 1/√head_dim and the 1/head_dim that μP asks for differ by the same number at all widths.

    Raises ValueError naming the field that is not.
    """
    raise NotImplementedError


class ScaledUnembedding(Unembedding):
    """An Unembedding whose logits are multiplied by scale: its own weight and bias, no copies.

    It has the attributes weight, bias and scale, so a model's state_dict keeps its names.
    """

    def __init__(self, unembedding: Unembedding, scale: float | int):
        raise NotImplementedError

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocab"]:
        """scale · (x weightᵀ + bias)"""
        raise NotImplementedError


def with_mup(
    model: Transformer, base: ModelConfig, init: float | int = 1.0, output: float | int = 1.0
) -> Transformer:
    """Put a new model into the maximal update parametrization, in place, and return it.

    m = width_ratio(model.config, base). The hidden_matrices, drawn as lesson 13 draws them, with the same σ at every
    width, are multiplied by init / √m: a variance that falls as 1 / fan_in. The unembedding becomes a
    ScaledUnembedding by output / m. Everything else stays. init and output are two numbers to be tuned at the width of
    base; 1 and 1 leave a model of that width as it was.

    These are the rows of Table 8 of Yang et al., 2022 (arXiv 2203.03466), counted from base: the table of a multiplier
    for the output, which allows tied matrices. mup_groups has its learning rates.

    Raises ValueError naming init or output where it is not above 0, model where it is in μP already, and what
    width_ratio raises; nothing is changed then.
    """
    raise NotImplementedError


def mup_groups(model: Transformer, base: ModelConfig, lr: float, weight_decay: float = 0.0) -> list[dict]:
    """Three groups for AdamW, with the learning rates of Table 8 of Yang et al., 2022, counted from base.

    m = width_ratio(model.config, base).

    hidden_matrices:        lr / m,  weight_decay · m, so that a step takes the same share of a weight at every width
    all other matrices:     lr,      weight_decay
    vectors:                lr,      no decay

    Each group is a dict of params (in the model's order, each once), lr and weight_decay.

    Raises ValueError naming lr or weight_decay where it is below 0, and what width_ratio raises.
    """
    raise NotImplementedError


# -- a law for the loss

class ScalingLaw(NamedTuple):
    """L(n, d) = E + A / n^α + B / d^β: the loss of a model of n parameters after d tokens.

    E: what no model gets below. A / n^α: what too small a model costs; B / d^β: what too few tokens cost.
    Hoffmann et al., 2022 (arXiv 2203.15556), equation 2.
    """

    E: float
    A: float
    B: float
    alpha: float
    beta: float

    def loss(self, n: float | int | Tensor, d: float | int | Tensor) -> float | Tensor:
        """L(n, d), for numbers or tensors."""
        raise NotImplementedError


def law_error(
    parameters: Float[Tensor, "*starts 5"],
    n: Float[Tensor, " runs"],
    d: Float[Tensor, " runs"],
    loss: Float[Tensor, " runs"],
    delta: float = 1e-3,
) -> Float[Tensor, "*starts"]:
    """How badly a law fits runs: the sum of Huber(log L(n, d) − log loss) over them.

    parameters: log E, log A, log B, α, β on the last axis, so that E, A and B are above 0 whatever they are.
    log L = logsumexp(log E, log A − α log n, log B − β log d), which cannot overflow. Huber(r) is r² / 2 up to
    |r| = delta, and from there the straight line delta · (|r| − delta / 2): a run that went wrong pulls no harder than
    one that is off by delta.
    """
    raise NotImplementedError


def start_grid() -> Float[Tensor, "starts 5"]:
    """Given: the starts of Hoffmann et al., section D.2: every combination of these, 4,500 in all."""
    values = ([-1, -0.5, 0, 0.5, 1], range(0, 26, 5), range(0, 26, 5), [0, 0.5, 1, 1.5, 2], [0, 0.5, 1, 1.5, 2])
    return torch.tensor(list(product(*values)), dtype=torch.float64)


def fit_scaling_law(
    n: Float[Tensor, " runs"],
    d: Float[Tensor, " runs"],
    loss: Float[Tensor, " runs"],
    starts: Float[Tensor, "starts 5"] | None = None,
    tries: int = 5,
    delta: float = 1e-3,
) -> ScalingLaw:
    """The law that fits runs best: n parameters, d tokens, and the loss that each ended with.

    starts: as parameters of law_error, start_grid() where they are left out. law_error is computed at all of them, and
    minimized by L-BFGS from each of the `tries` best; the best of what comes out counts. All in float64.

    What is minimized is law_error / delta, so that its slopes are no tiny numbers, and n and d are counted in their
    geometric means N and D: then A / N^α is what has to be found, which hardly depends on α. torch.optim.LBFGS with
    line_search_fn="strong_wolfe", max_iter=1000, tolerance_grad=1e-7 and tolerance_change=1e-10 does the rest.

    Raises ValueError, naming the argument, where a number is not finite and above 0, tries is below 1, there are fewer
    than 5 runs (naming n), n or d has fewer than 3 different values, log d is a straight line in log n (naming d:
    nothing tells then which of the two helped), or the fitted loss does not fall as n and d grow (naming loss).
    Hoffmann et al., 2022 (arXiv 2203.15556), section 3.3 and D.2.
    """
    raise NotImplementedError


def training_flops(n: float | int, d: float | int) -> float | int:
    """What it costs to train n parameters on d tokens: 6 n d floating-point operations.

    2 n for a token's forward pass, a multiplication and an addition for each parameter; twice that for its backward
    pass, whose products give the gradients of the inputs and of the weights. Attention's scores are left out. Kaplan
    et al., 2020 (arXiv 2001.08361).

    Raises ValueError, naming the argument, where n or d is not above 0.
    """
    raise NotImplementedError


def optimal(flops: float | int, law: ScalingLaw) -> tuple[float, float]:
    """The (n, d) of the smallest loss that flops can buy: of all with training_flops(n, d) = flops.

    n = G (flops / 6)^(β / (α + β)),    G = (α A / (β B))^(1 / (α + β)),    d = flops / (6 n).

    There the slopes agree: 1 % more parameters would gain what 1 % fewer tokens lose. E plays no part.

    Raises ValueError naming flops where it is not above 0. Hoffmann et al., 2022, equation 4.
    """
    raise NotImplementedError


def tokens_for(loss: float | int, n: float | int, law: ScalingLaw) -> float:
    """How many tokens a model of n parameters needs to reach a loss: (B / (loss − E − A / n^α))^(1/β).

    A model that is not much smaller than the optimal one gets there too, with more training, and is cheaper each time
    that it is used; one that is far smaller never gets there.

    Raises ValueError naming n where it is not above 0, and loss where no number of tokens brings n parameters there.
    """
    raise NotImplementedError


# -- how large a batch is worth its tokens

def critical_batch(
    small_norms: Float[Tensor, " a"], big_norms: Float[Tensor, " b"], small: float | int, big: float | int
) -> float:
    """The simple noise scale, tr Σ / |G|², from norms of gradients measured with two sizes of a batch.

    A batch of B examples has a gradient whose expected square is |G|² + tr Σ / B: the true gradient's, and the noise
    of single examples. Two sizes give two equations, solved by

        |G|² = (big · |G_big|² − small · |G_small|²) / (big − small)
        tr Σ = (|G_small|² − |G_big|²) / (1 / small − 1 / big)

    where |G_small|² and |G_big|² are means of squares, over several batches of each size. At a batch as large as their
    ratio the noise is as large as the gradient itself. It is in the unit of small and big: tokens or sequences.

    Raises ValueError naming small where it is not above 0, big where it is not above small, and big_norms where what
    is left for |G|² or for tr Σ is not above 0: then more batches have to be measured. In at least float32.
    McCandlish et al., 2018 (arXiv 1812.06162), appendix A.1.
    """
    raise NotImplementedError


def batch_costs(batch: float | int, critical: float | int) -> tuple[float, float]:
    """What a batch size costs: (steps, tokens), each as a multiple of the fewest with which a loss can be reached.

    steps: 1 + critical / batch, near 1 for huge batches. tokens: 1 + batch / critical, near 1 for tiny ones. At the
    critical batch both are 2. McCandlish et al., 2018, equation 2.11.

    Raises ValueError, naming the argument, where batch or critical is not above 0.
    """
    raise NotImplementedError
