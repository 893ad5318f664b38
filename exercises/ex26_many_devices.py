"""Many devices: one step of training on several ranks.

A rank is a process with a device of its own. Each part of this lesson splits something between the ranks: the batch,
the optimizer's state, the weights, single layers, or the depth of the model. All of it is built on sending a tensor
from one rank to another, and none of it changes what a step computes.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from given.ranks import Group, random_state, set_random_state
from given.sizes import at_least_one, widen

from .ex03_linear import Linear
from .ex05_softmax import cross_entropy
from .ex12_block import PreNormBlock
from .ex13_transformer import ModelConfig, Transformer
from .ex14_training import IGNORED, AdamW, clip_grad_norm

# A model that 1, 2 or 4 ranks can split, to try things on.
TINY = ModelConfig(vocab_size=64, d_model=32, layers=4, heads=8, kv_heads=4, d_ff=64, max_seq_len=32)

# -- rings: every rank sends to the next one, the last to rank 0


def reduce_scatter(
    x: Shaped[Tensor, " length"], group: Group, add: Callable[[Tensor, Tensor], Tensor] = torch.add
) -> Shaped[Tensor, " piece"]:
    """This rank's piece of the sum of all ranks' x: piece r of x.tensor_split(size) on rank r, a new tensor.

    In size − 1 rounds each rank sends a piece to the next rank, and adds what comes from the one before to its own x's
    piece: the partial sum of a piece visits all ranks, and ends at the rank whose it is. The lengths of the pieces may
    differ by one; x is left as it was. add(a, b): what is done in place of a sum, such as torch.maximum.

    Raises ValueError on all ranks, naming x, where its shape or dtype is not the same on all of them.
    """
    raise NotImplementedError


def all_gather(piece: Shaped[Tensor, " piece"], group: Group) -> Shaped[Tensor, " length"]:
    """The pieces of all ranks, joined in the order of the ranks, on every rank. Their lengths may differ.

    In size − 1 rounds each rank hands on to the next one what came last from the one before, first its own piece.

    Raises ValueError on all ranks, naming piece, where its dtype is not the same on all of them.
    """
    raise NotImplementedError


def ring_all_reduce(
    x: Shaped[Tensor, "*shape"], group: Group, add: Callable[[Tensor, Tensor], Tensor] = torch.add
) -> Shaped[Tensor, "*shape"]:
    """The sum of all ranks' x, the same on every rank, as a new tensor: a reduce_scatter, then an all_gather.

    x may have any shape, and hold fewer numbers than there are ranks. Raises what reduce_scatter raises.
    """
    raise NotImplementedError


def broadcast(x: Shaped[Tensor, "*shape"], group: Group) -> Shaped[Tensor, "*shape"]:
    """Rank 0's x on every rank, a new tensor: each rank hands it on to the next one.

    Raises ValueError on all ranks, naming x, where its shape or dtype is not the same on all of them.
    """
    raise NotImplementedError


def all_reduce_bytes(n_bytes: float, size: int) -> float:
    """What a rank sends in a ring_all_reduce of n_bytes, the mean over the ranks: 2 · (size − 1) / size · n_bytes.

    Raises ValueError naming size where it is below 1.
    """
    raise NotImplementedError


# -- the batch is split

def shard_batch(x: Shaped[Tensor, "batch *rest"], group: Group) -> Shaped[Tensor, "rows *rest"]:
    """This rank's rows of a batch that all ranks have: as many on each, in the order of the ranks.

    With more rows on one rank than on another, the mean of the ranks' means would not be the batch's.

    Raises ValueError on all ranks, naming x, where its rows cannot be divided by size.
    """
    raise NotImplementedError


def seed_ranks(seed: int, group: Group) -> None:
    """Seed torch's random numbers with seed + rank, so that dropout falls elsewhere on each rank.

    Models are to begin alike: make them before, or let DataParallel copy rank 0's.
    """
    raise NotImplementedError


def make_buckets(parameters: Iterable[nn.Parameter], bucket_bytes: int) -> list[list[nn.Parameter]]:
    """Parameters in buckets, the last parameter first: a backward pass reaches it first.

    A bucket is full as soon as its gradients hold bucket_bytes or more; the last one may hold less. Where the next
    parameter has another dtype, a new bucket begins all the same. What needs no gradient is left out.

    Raises ValueError naming bucket_bytes where it is below 1.
    """
    raise NotImplementedError


class DataParallel(nn.Module):
    """A module whose gradients are averaged over the ranks while the backward pass still runs.

    module: called by forward, as it is. group. buckets: make_buckets of its parameters. At the start the parameters and
    buffers are rank 0's.

    As soon as every parameter of a bucket has its gradient (register_post_accumulate_grad_hook), and all buckets before
    it are done, the bucket is reduced: one ring_all_reduce of its gradients as one vector, divided by size, written
    back into each .grad. So all ranks reduce the same buckets in the same order. Li et al., 2020 (arXiv 2006.15704).

    Raises ValueError on all ranks, naming module, where names, shapes or dtypes of its parameters and buffers are not
    the same on all of them; bucket_bytes where it is below 1.

    To be written here: torch's DistributedDataParallel is not used.
    """

    def __init__(self, module: nn.Module, group: Group, bucket_bytes: int = 25 * 2**20):
        super().__init__()
        raise NotImplementedError

    def forward(self, *args, **kwargs):
        """What the module gives.

        Raises ValueError, naming module, where a parameter of it had no gradient in the last backward pass: its bucket
        was never full, and the gradients of this bucket and of those behind it were not averaged.
        """
        raise NotImplementedError

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside of this, a backward pass reduces nothing: gradients add up on each rank.

        The next backward pass outside reduces the sums.
        """
        raise NotImplementedError

    def arrive(self, p: nn.Parameter) -> None:
        """Called where a parameter has got its gradient: reduce what is full, in the order of the buckets."""
        raise NotImplementedError

    def reduce(self, bucket: list[nn.Parameter]) -> None:
        """Replace the gradients of a bucket's parameters by their means over the ranks, in one ring_all_reduce."""
        raise NotImplementedError


def flatten(tensors: Sequence[Tensor]) -> Shaped[Tensor, " length"]:
    """Given: all their numbers as one new vector, without a graph."""
    return torch.cat([x.detach().reshape(-1) for x in tensors])


def unflatten(flat: Shaped[Tensor, " length"], like: Sequence[Tensor]) -> list[Tensor]:
    """Given: a vector cut into parts with the shapes of these tensors: views of it, with its graph."""
    return [part.view(x.shape) for part, x in zip(flat.split([x.numel() for x in like]), like)]


def own_part(flat: Shaped[Tensor, " length"], group: Group) -> Shaped[Tensor, " piece"]:
    """Given: this rank's piece of a vector, flat.tensor_split(size)[rank], a copy."""
    return flat.tensor_split(group.size)[group.rank].clone()


# -- the optimizer's state is split

class ShardedAdamW:
    """AdamW whose state is split between the ranks: ZeRO, stage 1.

    params: parameters, or parameter groups, as for lesson 14's AdamW; options: its other arguments. All ranks have all
    parameters, with the same values. Of each group's parameters as one vector, rank r keeps piece r of
    tensor_split(size), a copy in at least float32: a Parameter in `inner`, the AdamW that moves it, which has m and v
    for that piece alone. Rajbhandari et al., 2019 (arXiv 1910.02054).

    Raises ValueError on all ranks, naming params, where their shapes or dtypes are not the same on all of them.
    """

    def __init__(self, params: Iterable, group: Group, **options):
        raise NotImplementedError

    def zero_grad(self) -> None:
        """Drop the gradients of all parameters."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self, max_norm: float | int | None = None) -> Float[Tensor, ""]:
        """Move all parameters by the mean of the ranks' gradients; returns the norm of that mean before clipping.

        Per group: reduce_scatter the gradients as one vector, divide by size, let inner move the piece, all_gather the
        pieces in the dtype of the parameters, and write them into the parameters. A parameter without a gradient counts
        as one with zeros. max_norm: the whole gradient, of all pieces on all ranks, is scaled down to it, as by
        clip_grad_norm; None clips nothing.

        Raises ValueError naming max_norm where it is not above 0.
        """
        raise NotImplementedError


# -- the weights are split

class GatherPieces(torch.autograd.Function):
    """GatherPieces.apply(piece, group, held): all ranks' pieces; backward: the mean gradient's own piece.

    The backward of an all_gather is a reduce_scatter, here divided by size: the mean over the ranks. held: a dict that
    is emptied then, as nothing before needs the whole any more.
    """

    @staticmethod
    def forward(ctx, piece: Shaped[Tensor, " piece"], group: Group, held: dict) -> Shaped[Tensor, " length"]:
        raise NotImplementedError

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple:
        raise NotImplementedError


class Sharded(nn.Module):
    """A module of whose parameters each rank keeps a piece: ZeRO, stage 3, for one unit.

    module, whose parameters are taken from it (plain attributes are in their places: None, and tensors while it runs);
    piece: a Parameter, this rank's piece of all of them as one vector, rank 0's values at the start. Sharded modules
    inside of it keep theirs. A parameter that two modules share is there once. Whether one needed a gradient
    is not kept: all of piece gets one. To freeze a part, make it a unit of its own, and freeze its piece.

    Raises ValueError on all ranks, naming module, where names, shapes or dtypes differ between the ranks, and on each
    where its parameters are of several dtypes, or it has none.
    Rajbhandari et al., 2019 (arXiv 1910.02054); Zhao et al., 2023 (arXiv 2304.11277).
    """

    def __init__(self, module: nn.Module, group: Group):
        super().__init__()
        raise NotImplementedError

    def put(self, parts: Iterable[Tensor | None]) -> None:
        """Given: the i-th of these is what the module's layers have for parameter i, wherever it stands: places[i]."""
        for places, part in zip(self.places, parts):
            for owner, name in places:
                setattr(owner, name, part)

    def forward(self, *args, **kwargs):
        """What the module gives with all its parameters, which are gathered for it, and freed after it.

        For the backward pass, autograd keeps of each tensor that lies in the gathered vector only where it lies
        (torch.autograd.graph.saved_tensors_hooks); at the first that is needed the pieces are gathered again, and the
        vector is freed as soon as the gradient has been reduce-scattered.
        """
        raise NotImplementedError


def fully_sharded(model: Transformer, group: Group) -> Sharded:
    """A model in units: each of model.blocks becomes Sharded, in its place, and then the model with what is left.

    So no rank ever holds more than the rest and one block at a time.
    """
    raise NotImplementedError


# -- single layers are split

class CopyToRanks(torch.autograd.Function):
    """CopyToRanks.apply(x, group): x as it is; backward: the sum of all ranks' gradients. Megatron's f.

    Every rank computes with the same x, so each of them has a part of its gradient.
    """

    @staticmethod
    def forward(ctx, x: Float[Tensor, "*shape"], group: Group) -> Float[Tensor, "*shape"]:
        raise NotImplementedError

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple:
        raise NotImplementedError


class ReduceFromRanks(torch.autograd.Function):
    """ReduceFromRanks.apply(x, group): the sum of all ranks' x; backward: the gradient as it is. Megatron's g.

    The sum, and so its gradient, is the same on every rank; each x is in it once.
    """

    @staticmethod
    def forward(ctx, x: Float[Tensor, "*shape"], group: Group) -> Float[Tensor, "*shape"]:
        raise NotImplementedError

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple:
        raise NotImplementedError


class ColumnParallelLinear(nn.Module):
    """A Linear of which each rank has some of the outputs: y_r = f(x) W_rᵀ + b_r.

    linear: the whole layer, the same on all ranks. weight: this rank's out_features / size rows of its weight, a copy;
    bias: the same of its bias, or None. copy=False leaves out f: layers that share their x need it once, before it
    goes to all of them. Shoeybi et al., 2019 (arXiv 1909.08053), section 3.

    Raises ValueError naming linear where its out_features cannot be divided by size.
    """

    def __init__(self, linear: Linear, group: Group, copy: bool = True):
        super().__init__()
        raise NotImplementedError

    def forward(self, x: Float[Tensor, "*batch in_features"]) -> Float[Tensor, "*batch own_features"]:
        """This rank's outputs, of an x that is the same on all ranks."""
        raise NotImplementedError


class RowParallelLinear(nn.Module):
    """A Linear of which each rank has some of the inputs: y = g(x_r W_rᵀ) + b.

    linear: the whole layer, the same on all ranks. weight: this rank's in_features / size columns of its weight, a
    copy; bias: all of its bias on every rank, a copy, added once, after the sum; or None.

    Raises ValueError naming linear where its in_features cannot be divided by size.
    """

    def __init__(self, linear: Linear, group: Group):
        super().__init__()
        raise NotImplementedError

    def forward(self, x: Float[Tensor, "*batch own_features"]) -> Float[Tensor, "*batch out_features"]:
        """The whole output, the same on all ranks, of this rank's features of x."""
        raise NotImplementedError


def own_piece(x: Tensor, dim: int, group: Group) -> nn.Parameter:
    """Given: this rank's piece of a tensor along dim, as a Parameter with memory of its own."""
    piece = x.detach().tensor_split(group.size, dim)[group.rank]
    return nn.Parameter(piece.clone(memory_format=torch.contiguous_format))


def tensor_parallel(block: PreNormBlock, group: Group) -> PreNormBlock:
    """A block with a SwiGLU whose layers are split, changed in place: two all-reduces forward, two backward.

    q_proj, k_proj, v_proj, gate and up by columns, o_proj and down by rows; attention has heads / size heads and
    kv_heads / size heads of keys and values on each rank. Norms are whole on every rank; q_norm and k_norm, where there
    are any, see this rank's heads alone, so that each rank has a part of their gradient: it is all-reduced. f stands
    once before each sublayer, in a forward pre-hook, and not in each of its layers.

    Raises ValueError naming block where its kv_heads cannot be divided by size.
    """
    raise NotImplementedError


def vocab_parallel_cross_entropy(
    logits: Float[Tensor, "*batch own_vocab"],
    targets: Int[Tensor, "*batch"],
    group: Group,
    ignore_index: int = IGNORED,
) -> Float[Tensor, ""]:
    """cross_entropy of logits of which each rank has some of the vocabulary; the same on all ranks.

    logits: rank 0's are of the first words, rank 1's of those after them, and so on; there may be more on one rank than
    on another. targets: the same on all ranks, 0 … vocab − 1 or ignore_index. Of each kept target, with z the logits:

        loss = log Σ e^(z − max z) − (z[target] − max z)

    The maximum over all ranks is one all-reduce of a number for each kept target, and no gradient passes it; the sum
    and z[target], which is 0 on the ranks that do not have it, are one each, by g. In at least float32, cast back.

    Raises ValueError on all ranks, naming targets, where a kept one is not in 0 … vocab − 1, or none is kept.

    To be written here: torch's softmax, softmin, log_softmax, logsumexp, cross_entropy and nll_loss are not used.
    """
    raise NotImplementedError


# -- the depth is split

def one_f_one_b(stage: int, stages: int, micro_batches: int) -> list[tuple[str, int]]:
    """What one stage of a pipeline does, in order: ("F", i) and ("B", i), micro-batch i forward and backward.

    First forward passes that fill the pipeline, stages − stage − 1 of them, or all where there are fewer; then one
    forward, one backward, until all are forward; then the backward passes that are left. Each micro-batch keeps its
    order: 0, 1, 2, … So at most stages − stage micro-batches are kept at a time. Narayanan et al., 2021
    (arXiv 2104.04473).

    Raises ValueError naming stages or micro_batches where it is below 1, stage where it is not in 0 … stages − 1.
    """
    raise NotImplementedError


def bubble(stages: int, micro_batches: int) -> float:
    """The share of its time in which a stage waits: (stages − 1) / (micro_batches + stages − 1).

    A forward pass of a micro-batch takes as long on every stage, and so does a backward pass; sending takes no time.
    Raises ValueError naming stages or micro_batches where it is below 1. Huang et al., 2018 (arXiv 1811.06965).
    """
    raise NotImplementedError


def run_pipeline(
    module: nn.Module,
    group: Group,
    schedule: list[tuple[str, int]],
    inputs: Sequence[Tensor],
    targets: Sequence[Tensor],
    loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy,
) -> float | None:
    """Run this rank's schedule: rank r is stage r. The mean loss of the micro-batches on the last stage; else None.

    module: this stage's part of the model. inputs: the micro-batches, read on the first stage; targets: theirs, read on
    the last. ("F", i): the first stage takes inputs[i], others receive their input from the stage before; the output is
    sent to the next stage, or goes into loss(output, targets[i]) on the last. ("B", i): from the gradient of the
    output, received from the next stage, or of the loss divided by how many micro-batches there are, to the gradients
    of the parameters, which add up, and of the input, which is sent to the stage before.

    Where what is sent and what the next entry of the schedule needs go to and come from the same stage, they are
    exchanged at once: two neighbours that both first send would wait for each other.

    Raises ValueError on all ranks, naming inputs, where not all have as many inputs as targets, and as others.
    """
    raise NotImplementedError


# -- what a rank sends and holds

def step_bytes(scheme: str, parameter_bytes: float, size: int) -> float:
    """What a rank sends in one step, the mean over the ranks, for n bytes of weights and as many of gradients.

    "data": all-reduce of the gradients, 2 · (size − 1) / size · n. "zero1": reduce-scatter of the gradients and
    all-gather of the weights, the same. "zero3": all-gather of the weights forward and again backward, reduce-scatter
    of the gradients, 3 · (size − 1) / size · n.

    Raises ValueError naming scheme where it is another, size where it is below 1.
    """
    raise NotImplementedError


def tensor_parallel_bytes(layers: int, activation_bytes: float, size: int) -> float:
    """What a rank sends in one step of `layers` blocks by tensor_parallel: 4 all-reduces of the activations each.

    activation_bytes: of one batch, tokens · d_model numbers. Raises ValueError naming size where it is below 1.
    """
    raise NotImplementedError


def pipeline_bytes(stage: int, stages: int, micro_batches: int, activation_bytes: float) -> float:
    """What a stage sends in one step: activation_bytes for every micro-batch, to each neighbour that it has.

    activation_bytes: of one micro-batch. Outputs go to the next stage, gradients to the one before.
    Raises ValueError as one_f_one_b does.
    """
    raise NotImplementedError


class Memory(NamedTuple):
    """Bytes that a rank holds: weights and gradients in half precision; the optimizer's state in float32."""

    weights: float
    gradients: float
    optimizer: float


def memory_per_rank(scheme: str, parameters: float, size: int) -> Memory:
    """What a rank holds of a model in mixed precision, without activations: 16 bytes a parameter, split by the scheme.

    Of each parameter: 2 bytes of weight, 2 of gradient, 12 of optimizer (a float32 copy of the weight, m and v).
    "data": all on every rank. "zero1": the optimizer's divided by size. "zero2": its and the gradients. "zero3" and
    "tensor", with all layers split: all three.

    Raises ValueError naming scheme where it is another, size where it is below 1.
    """
    raise NotImplementedError


# -- half precision, and memory for time

class LossScaler:
    """Keeps the gradients of a float16 model above what float16 rounds to zero.

    scale: what the loss is multiplied by. growth: what scale is multiplied by after `interval` steps in a row without
    an infinite or NaN gradient; backoff: what it is multiplied by after a step with one. group: ranks that decide
    together, where each has gradients of its own. Micikevicius et al., 2017 (arXiv 1710.03740).

    Raises ValueError naming scale where it is not above 0 and finite, growth where it is not above 1, backoff where it
    is not between 0 and 1, interval where it is below 1.

    To be written here: torch's GradScaler is not used.
    """

    def __init__(self, scale: float = 2.0**16, growth: float = 2.0, backoff: float = 0.5, interval: int = 2000,
                 group: Group | None = None):
        raise NotImplementedError

    def unscale(self, parameters: Iterable[Tensor]) -> bool:
        """Divide all gradients by scale, in place; whether all of them are finite, on all ranks of the group.

        Parameters without a gradient are passed over. To be called once a step, before clipping.
        """
        raise NotImplementedError

    def update(self, finite: bool) -> None:
        """Change scale after a step: less where a gradient was not finite, more after interval steps that all were."""
        raise NotImplementedError


def autocast_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: LossScaler,
    inputs: Tensor,
    targets: Tensor,
    max_norm: float | int = 1.0,
    dtype: torch.dtype = torch.float16,
) -> tuple[float, float | None]:
    """One step of training in half precision: (loss, the gradient's norm before clipping).

    Old gradients are dropped. Forward and cross_entropy, of logits in float32, under torch.autocast for the device of
    inputs; backward, outside of it, from the loss times scale. Then unscale, clip_grad_norm to max_norm, step, update.
    Where a gradient is not finite there is no step, the parameters stay as they are, and the norm is None. The loss
    that is returned is not scaled.

    To be written here: torch's GradScaler is not used.
    """
    raise NotImplementedError


class Recompute(torch.autograd.Function):
    """Recompute.apply(run, count, *tensors): run(*tensors[:count]) without a graph; backward runs it again with one.

    tensors: the count inputs, of which all but the first may be None; then every parameter that run uses, so that all
    of them get their gradients.

    To be written here: torch.utils.checkpoint is not used.
    """

    @staticmethod
    def forward(ctx, run: Callable[..., Tensor], count: int, *tensors: Tensor | None) -> Tensor:
        raise NotImplementedError

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple:
        raise NotImplementedError


class Checkpointed(nn.Module):
    """A module that gives what block gives, and keeps nothing of it for the backward pass but its input.

    The backward pass runs the block again, with the random numbers and the autocast that it had, so that dropout falls
    on the same places; what draws afterwards goes on as if nothing had been drawn. Gradients of the input and of all
    parameters are as without it. With Sharded: first shard a block, then checkpoint it. Inside of a Sharded module its
    weights are gone when the backward pass runs it again. Chen et al., 2016 (arXiv 1604.06174).

    To be written here: torch.utils.checkpoint is not used.
    """

    def __init__(self, block: nn.Module):
        super().__init__()
        self.block = block

    def forward(self, *inputs: Tensor | None, **named) -> Tensor:
        """What block gives, by Recompute. Named arguments are handed on as they are, and get no gradient."""
        raise NotImplementedError


def checkpointed(block: nn.Module) -> Checkpointed:
    """Given: a block that is run again in the backward pass: model.blocks[n] = checkpointed(model.blocks[n])."""
    return Checkpointed(block)
