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
    # BEGIN SOLUTION
    group.agree(x=(tuple(x.shape), x.dtype))
    pieces = [piece.clone() for piece in x.detach().tensor_split(group.size)]
    rank, size = group.rank, group.size
    for n in range(1, size):
        arrived = group.exchange(pieces[(rank - n) % size], (rank + 1) % size, (rank - 1) % size)
        mine = (rank - n - 1) % size
        pieces[mine] = add(pieces[mine], arrived)
    return pieces[rank]
    # END SOLUTION


def all_gather(piece: Shaped[Tensor, " piece"], group: Group) -> Shaped[Tensor, " length"]:
    """The pieces of all ranks, joined in the order of the ranks, on every rank. Their lengths may differ.

    In size − 1 rounds each rank hands on to the next one what came last from the one before, first its own piece.

    Raises ValueError on all ranks, naming piece, where its dtype is not the same on all of them.
    """
    # BEGIN SOLUTION
    group.agree(piece=piece.dtype)
    rank, size = group.rank, group.size
    pieces = {rank: piece.detach()}
    for n in range(1, size):
        pieces[(rank - n) % size] = group.exchange(
            pieces[(rank - n + 1) % size], (rank + 1) % size, (rank - 1) % size)
    return torch.cat([pieces[other] for other in range(size)])
    # END SOLUTION


def ring_all_reduce(
    x: Shaped[Tensor, "*shape"], group: Group, add: Callable[[Tensor, Tensor], Tensor] = torch.add
) -> Shaped[Tensor, "*shape"]:
    """The sum of all ranks' x, the same on every rank, as a new tensor: a reduce_scatter, then an all_gather.

    x may have any shape, and hold fewer numbers than there are ranks. Raises what reduce_scatter raises.
    """
    # BEGIN SOLUTION
    group.agree(x=(tuple(x.shape), x.dtype))
    return all_gather(reduce_scatter(x.reshape(-1), group, add), group).reshape(x.shape)
    # END SOLUTION


def broadcast(x: Shaped[Tensor, "*shape"], group: Group) -> Shaped[Tensor, "*shape"]:
    """Rank 0's x on every rank, a new tensor: each rank hands it on to the next one.

    Raises ValueError on all ranks, naming x, where its shape or dtype is not the same on all of them.
    """
    # BEGIN SOLUTION
    group.agree(x=(tuple(x.shape), x.dtype))
    x = x.detach().clone() if group.rank == 0 else group.recv(group.rank - 1)
    if group.rank < group.size - 1:
        group.send(x, group.rank + 1)
    return x
    # END SOLUTION


def all_reduce_bytes(n_bytes: float, size: int) -> float:
    """What a rank sends in a ring_all_reduce of n_bytes, the mean over the ranks: 2 · (size − 1) / size · n_bytes.

    Raises ValueError naming size where it is below 1.
    """
    # BEGIN SOLUTION
    at_least_one(size=size)
    return 2 * (size - 1) / size * n_bytes
    # END SOLUTION


# -- the batch is split

def shard_batch(x: Shaped[Tensor, "batch *rest"], group: Group) -> Shaped[Tensor, "rows *rest"]:
    """This rank's rows of a batch that all ranks have: as many on each, in the order of the ranks.

    With more rows on one rank than on another, the mean of the ranks' means would not be the batch's.

    Raises ValueError on all ranks, naming x, where its rows cannot be divided by size.
    """
    # BEGIN SOLUTION
    if len(x) % group.size:
        raise ValueError(f"x must have a multiple of {group.size} rows, one share for each rank, got {len(x)}")
    return x.chunk(group.size)[group.rank] if len(x) else x
    # END SOLUTION


def seed_ranks(seed: int, group: Group) -> None:
    """Seed torch's random numbers with seed + rank, so that dropout falls elsewhere on each rank.

    Models are to begin alike: make them before, or let DataParallel copy rank 0's.
    """
    # BEGIN SOLUTION
    torch.manual_seed(seed + group.rank)
    # END SOLUTION


def make_buckets(parameters: Iterable[nn.Parameter], bucket_bytes: int) -> list[list[nn.Parameter]]:
    """Parameters in buckets, the last parameter first: a backward pass reaches it first.

    A bucket is full as soon as its gradients hold bucket_bytes or more; the last one may hold less. Where the next
    parameter has another dtype, a new bucket begins all the same. What needs no gradient is left out.

    Raises ValueError naming bucket_bytes where it is below 1.
    """
    # BEGIN SOLUTION
    at_least_one(bucket_bytes=bucket_bytes)
    buckets, held = [], bucket_bytes
    for p in reversed([p for p in parameters if p.requires_grad]):
        if held >= bucket_bytes or p.dtype != buckets[-1][-1].dtype:
            buckets.append([])
            held = 0
        buckets[-1].append(p)
        held += p.numel() * p.element_size()
    return buckets
    # END SOLUTION


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
        # BEGIN SOLUTION
        self.buckets = make_buckets(module.parameters(), bucket_bytes)
        state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        group.agree(module=[(name, tuple(x.shape), x.dtype) for name, x in state.items()])
        for x in state.values():
            x.data.copy_(broadcast(x, group))
        self.module, self.group = module, group
        self.arrived: set[nn.Parameter] = set()
        self.done, self.syncing = 0, True
        for bucket in self.buckets:
            for p in bucket:
                p.register_post_accumulate_grad_hook(self.arrive)
        # END SOLUTION

    def forward(self, *args, **kwargs):
        """What the module gives.

        Raises ValueError, naming module, where a parameter of it had no gradient in the last backward pass: its bucket
        was never full, and the gradients of this bucket and of those behind it were not averaged.
        """
        # BEGIN SOLUTION
        if self.arrived:
            missing = [name for name, p in self.module.named_parameters() if p.requires_grad and p not in self.arrived]
            self.arrived, self.done = set(), 0
            raise ValueError(f"module has parameters that got no gradient: {', '.join(missing)}")
        return self.module(*args, **kwargs)
        # END SOLUTION

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside of this, a backward pass reduces nothing: gradients add up on each rank.

        The next backward pass outside reduces the sums.
        """
        # BEGIN SOLUTION
        self.syncing = False
        try:
            yield
        finally:
            self.syncing = True
        # END SOLUTION

    def arrive(self, p: nn.Parameter) -> None:
        """Called where a parameter has got its gradient: reduce what is full, in the order of the buckets."""
        # BEGIN SOLUTION
        if not self.syncing:
            return
        self.arrived.add(p)
        while self.done < len(self.buckets) and self.arrived.issuperset(self.buckets[self.done]):
            self.reduce(self.buckets[self.done])
            self.done += 1
        if self.done == len(self.buckets):
            self.arrived, self.done = set(), 0
        # END SOLUTION

    def reduce(self, bucket: list[nn.Parameter]) -> None:
        """Replace the gradients of a bucket's parameters by their means over the ranks, in one ring_all_reduce."""
        # BEGIN SOLUTION
        mean = ring_all_reduce(flatten([p.grad for p in bucket]), self.group) / self.group.size
        for p, part in zip(bucket, unflatten(mean, bucket)):
            p.grad.copy_(part)
        # END SOLUTION


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
        # BEGIN SOLUTION
        params = list(params)
        groups = [dict(g) for g in params] if params and isinstance(params[0], dict) else [{"params": params}]
        self.group, self.full = group, [list(g["params"]) for g in groups]
        group.agree(params=[[(tuple(p.shape), p.dtype) for p in full] for full in self.full])
        self.inner = AdamW([{**g, "params": [nn.Parameter(widen(own_part(flatten(full), group)))]}
                            for g, full in zip(groups, self.full)], **options)
        # END SOLUTION

    def zero_grad(self) -> None:
        """Drop the gradients of all parameters."""
        # BEGIN SOLUTION
        for full in self.full:
            for p in full:
                p.grad = None
        # END SOLUTION

    @torch.no_grad()
    def step(self, max_norm: float | int | None = None) -> Float[Tensor, ""]:
        """Move all parameters by the mean of the ranks' gradients; returns the norm of that mean before clipping.

        Per group: reduce_scatter the gradients as one vector, divide by size, let inner move the piece, all_gather the
        pieces in the dtype of the parameters, and write them into the parameters. A parameter without a gradient counts
        as one with zeros. max_norm: the whole gradient, of all pieces on all ranks, is scaled down to it, as by
        clip_grad_norm; None clips nothing.

        Raises ValueError naming max_norm where it is not above 0.
        """
        # BEGIN SOLUTION
        if max_norm is not None and not max_norm > 0:
            raise ValueError(f"max_norm must be above 0, got {max_norm}")
        pieces = [g["params"][0] for g in self.inner.param_groups]
        for piece, full in zip(pieces, self.full):
            gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in full]
            piece.grad = widen(reduce_scatter(flatten(gradients), self.group)) / self.group.size
        squares = torch.stack([piece.grad.square().sum() for piece in pieces]).sum()
        norm = ring_all_reduce(squares, self.group).sqrt()
        if max_norm is not None:
            for piece in pieces:
                piece.grad.mul_((max_norm / (norm + 1e-6)).clamp(max=1))
        self.inner.step()
        for piece, full in zip(pieces, self.full):
            piece.grad = None
            for p, new in zip(full, unflatten(all_gather(piece.to(full[0].dtype), self.group), full)):
                p.copy_(new)
        return norm
        # END SOLUTION


# -- the weights are split

class GatherPieces(torch.autograd.Function):
    """GatherPieces.apply(piece, group, held): all ranks' pieces; backward: the mean gradient's own piece.

    The backward of an all_gather is a reduce_scatter, here divided by size: the mean over the ranks. held: a dict that
    is emptied then, as nothing before needs the whole any more.
    """

    @staticmethod
    def forward(ctx, piece: Shaped[Tensor, " piece"], group: Group, held: dict) -> Shaped[Tensor, " length"]:
        # BEGIN SOLUTION
        ctx.group, ctx.held = group, held
        return all_gather(piece, group)
        # END SOLUTION

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple:
        # BEGIN SOLUTION
        ctx.held.clear()
        return reduce_scatter(grad, ctx.group) / ctx.group.size, None, None
        # END SOLUTION


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
        # BEGIN SOLUTION
        owners: dict[nn.Parameter, list[tuple[nn.Module, str]]] = {}
        for owner in module.modules():
            for name, p in owner.named_parameters(recurse=False):
                if not isinstance(owner, Sharded):
                    owners.setdefault(p, []).append((owner, name))
        if len({p.dtype for p in owners}) != 1:
            raise ValueError(f"module must have parameters, of one dtype, got {len(owners)} of "
                             f"{sorted({str(p.dtype) for p in owners})}")
        group.agree(module=[(places[0][1], tuple(p.shape), p.dtype) for p, places in owners.items()])
        self.module, self.group = module, group
        self.places, self.shapes = list(owners.values()), [p.shape for p in owners]
        whole = broadcast(flatten(list(owners)), group)
        self.piece = nn.Parameter(own_part(whole, group))
        for owner, name in [place for places in self.places for place in places]:
            del owner._parameters[name]
        self.put([None] * len(self.places))
        # END SOLUTION

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
        # BEGIN SOLUTION
        held: dict[str, Tensor] = {}
        whole = GatherPieces.apply(self.piece, self.group, held)
        memory = whole.untyped_storage().data_ptr()

        def pack(x: Tensor) -> Tensor | tuple:
            """What autograd keeps of a tensor: where it lies in the vector, or itself."""
            lies_within = x.numel() and x.untyped_storage().data_ptr() == memory
            return (x.size(), x.stride(), x.storage_offset()) if lies_within else x

        def unpack(kept: Tensor | tuple) -> Tensor:
            """The tensor, out of a vector that is gathered again."""
            if isinstance(kept, Tensor):
                return kept
            if "whole" not in held:
                held["whole"] = all_gather(self.piece, self.group)
            return held["whole"].as_strided(*kept)

        try:
            parts = whole.split([shape.numel() for shape in self.shapes])
            self.put(part.view(shape) for shape, part in zip(self.shapes, parts))
            with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                return self.module(*args, **kwargs)
        finally:
            self.put([None] * len(self.places))
        # END SOLUTION


def fully_sharded(model: Transformer, group: Group) -> Sharded:
    """A model in units: each of model.blocks becomes Sharded, in its place, and then the model with what is left.

    So no rank ever holds more than the rest and one block at a time.
    """
    # BEGIN SOLUTION
    for n, block in enumerate(model.blocks):
        model.blocks[n] = Sharded(block, group)
    return Sharded(model, group)
    # END SOLUTION


# -- single layers are split

class CopyToRanks(torch.autograd.Function):
    """CopyToRanks.apply(x, group): x as it is; backward: the sum of all ranks' gradients. Megatron's f.

    Every rank computes with the same x, so each of them has a part of its gradient.
    """

    @staticmethod
    def forward(ctx, x: Float[Tensor, "*shape"], group: Group) -> Float[Tensor, "*shape"]:
        # BEGIN SOLUTION
        ctx.group = group
        return x.view_as(x)
        # END SOLUTION

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple:
        # BEGIN SOLUTION
        return ring_all_reduce(grad, ctx.group), None
        # END SOLUTION


class ReduceFromRanks(torch.autograd.Function):
    """ReduceFromRanks.apply(x, group): the sum of all ranks' x; backward: the gradient as it is. Megatron's g.

    The sum, and so its gradient, is the same on every rank; each x is in it once.
    """

    @staticmethod
    def forward(ctx, x: Float[Tensor, "*shape"], group: Group) -> Float[Tensor, "*shape"]:
        # BEGIN SOLUTION
        return ring_all_reduce(x, group)
        # END SOLUTION

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple:
        # BEGIN SOLUTION
        return grad, None
        # END SOLUTION


class ColumnParallelLinear(nn.Module):
    """A Linear of which each rank has some of the outputs: y_r = f(x) W_rᵀ + b_r.

    linear: the whole layer, the same on all ranks. weight: this rank's out_features / size rows of its weight, a copy;
    bias: the same of its bias, or None. copy=False leaves out f: layers that share their x need it once, before it
    goes to all of them. Shoeybi et al., 2019 (arXiv 1909.08053), section 3.

    Raises ValueError naming linear where its out_features cannot be divided by size.
    """

    def __init__(self, linear: Linear, group: Group, copy: bool = True):
        super().__init__()
        # BEGIN SOLUTION
        if len(linear.weight) % group.size:
            raise ValueError(f"linear must have a multiple of {group.size} out_features, got {len(linear.weight)}")
        self.group, self.copy = group, copy
        self.weight = own_piece(linear.weight, 0, group)
        self.bias = None if linear.bias is None else own_piece(linear.bias, 0, group)
        # END SOLUTION

    def forward(self, x: Float[Tensor, "*batch in_features"]) -> Float[Tensor, "*batch own_features"]:
        """This rank's outputs, of an x that is the same on all ranks."""
        # BEGIN SOLUTION
        x = CopyToRanks.apply(x, self.group) if self.copy else x
        y = x @ self.weight.T
        return y if self.bias is None else y + self.bias
        # END SOLUTION


class RowParallelLinear(nn.Module):
    """A Linear of which each rank has some of the inputs: y = g(x_r W_rᵀ) + b.

    linear: the whole layer, the same on all ranks. weight: this rank's in_features / size columns of its weight, a
    copy; bias: all of its bias on every rank, a copy, added once, after the sum; or None.

    Raises ValueError naming linear where its in_features cannot be divided by size.
    """

    def __init__(self, linear: Linear, group: Group):
        super().__init__()
        # BEGIN SOLUTION
        if linear.weight.shape[1] % group.size:
            raise ValueError(f"linear must have a multiple of {group.size} in_features, got {linear.weight.shape[1]}")
        self.group = group
        self.weight = own_piece(linear.weight, 1, group)
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach().clone())
        # END SOLUTION

    def forward(self, x: Float[Tensor, "*batch own_features"]) -> Float[Tensor, "*batch out_features"]:
        """The whole output, the same on all ranks, of this rank's features of x."""
        # BEGIN SOLUTION
        y = ReduceFromRanks.apply(x @ self.weight.T, self.group)
        return y if self.bias is None else y + self.bias
        # END SOLUTION


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
    # BEGIN SOLUTION
    attention, feed_forward = block.attention, block.feed_forward
    if attention.kv_heads % group.size:
        raise ValueError(f"block must have a multiple of {group.size} kv_heads, got {attention.kv_heads}")
    for module, names in ((attention, ("q_proj", "k_proj", "v_proj")), (feed_forward, ("gate", "up"))):
        for name in names:
            module.add_module(name, ColumnParallelLinear(module.get_submodule(name), group, copy=False))
        module.register_forward_pre_hook(lambda _, args: (CopyToRanks.apply(args[0], group), *args[1:]))
    for norm in filter(None, (attention.q_norm, attention.k_norm)):
        norm.weight.register_hook(lambda grad: ring_all_reduce(grad, group))
    attention.o_proj = RowParallelLinear(attention.o_proj, group)
    feed_forward.down = RowParallelLinear(feed_forward.down, group)
    attention.heads //= group.size
    attention.kv_heads //= group.size
    return block
    # END SOLUTION


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
    # BEGIN SOLUTION
    sizes = group.everyones(logits.shape[-1])
    start, vocab = sum(sizes[:group.rank]), sum(sizes)
    kept = targets != ignore_index
    ids, z = targets[kept].long(), widen(logits[kept])
    if not len(ids):
        raise ValueError(f"targets must hold one to learn from, got only {ignore_index}")
    if ((ids < 0) | (ids >= vocab)).any():
        raise ValueError(f"targets must be 0 … {vocab - 1}, or ignored, got {ids}")
    top = ring_all_reduce(z.detach().amax(-1), group, torch.maximum)
    z = z - top[:, None]
    total = ReduceFromRanks.apply(z.exp().sum(-1), group)
    own = (ids >= start) & (ids < start + z.shape[-1])
    here = z.gather(-1, (ids - start).where(own, 0)[:, None]).squeeze(-1)
    target = ReduceFromRanks.apply(here.where(own, 0), group)
    return (total.log() - target).mean().to(logits.dtype)
    # END SOLUTION


# -- the depth is split

def one_f_one_b(stage: int, stages: int, micro_batches: int) -> list[tuple[str, int]]:
    """What one stage of a pipeline does, in order: ("F", i) and ("B", i), micro-batch i forward and backward.

    First forward passes that fill the pipeline, stages − stage − 1 of them, or all where there are fewer; then one
    forward, one backward, until all are forward; then the backward passes that are left. Each micro-batch keeps its
    order: 0, 1, 2, … So at most stages − stage micro-batches are kept at a time. Narayanan et al., 2021
    (arXiv 2104.04473).

    Raises ValueError naming stages or micro_batches where it is below 1, stage where it is not in 0 … stages − 1.
    """
    # BEGIN SOLUTION
    at_least_one(stages=stages, micro_batches=micro_batches)
    if not 0 <= stage < stages:
        raise ValueError(f"stage must be in 0 … {stages - 1}, got {stage}")
    ahead = min(stages - stage - 1, micro_batches)
    schedule = [("F", i) for i in range(ahead)]
    for i in range(micro_batches - ahead):
        schedule += [("F", ahead + i), ("B", i)]
    return schedule + [("B", i) for i in range(micro_batches - ahead, micro_batches)]
    # END SOLUTION


def bubble(stages: int, micro_batches: int) -> float:
    """The share of its time in which a stage waits: (stages − 1) / (micro_batches + stages − 1).

    A forward pass of a micro-batch takes as long on every stage, and so does a backward pass; sending takes no time.
    Raises ValueError naming stages or micro_batches where it is below 1. Huang et al., 2018 (arXiv 1811.06965).
    """
    # BEGIN SOLUTION
    at_least_one(stages=stages, micro_batches=micro_batches)
    return (stages - 1) / (micro_batches + stages - 1)
    # END SOLUTION


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
    # BEGIN SOLUTION
    for rank, (many, wanted) in enumerate(group.everyones((len(inputs), len(targets)))):
        if many != wanted:
            raise ValueError(f"inputs must be as many as targets, {wanted}, got {many} on rank {rank}")
    group.agree(inputs=len(inputs))
    before = group.rank - 1 if group.rank > 0 else None
    after = group.rank + 1 if group.rank < group.size - 1 else None
    kept, total, arrived = {}, 0.0, None
    for n, (kind, i) in enumerate(schedule):
        source, goal = (before, after) if kind == "F" else (after, before)
        if source is not None and arrived is None:
            arrived = group.recv(source)
        if kind == "F":
            x = inputs[i] if before is None else arrived.requires_grad_()
            y = module(x)
            if after is None:
                y = loss(y, targets[i]) / len(inputs)
                total += y.item()
            kept[i] = x, y
            out = y
        else:
            x, y = kept.pop(i)
            (y if arrived is None else (y * arrived).sum()).backward()      # y's gradient is arrived
            out = x.grad
        arrived = None
        if goal is not None:
            turns = n + 1 < len(schedule) and schedule[n + 1][0] != kind
            if turns:
                arrived = group.exchange(out, goal, goal)
            else:
                group.send(out, goal)
    return total if after is None else None
    # END SOLUTION


# -- what a rank sends and holds

def step_bytes(scheme: str, parameter_bytes: float, size: int) -> float:
    """What a rank sends in one step, the mean over the ranks, for n bytes of weights and as many of gradients.

    "data": all-reduce of the gradients, 2 · (size − 1) / size · n. "zero1": reduce-scatter of the gradients and
    all-gather of the weights, the same. "zero3": all-gather of the weights forward and again backward, reduce-scatter
    of the gradients, 3 · (size − 1) / size · n.

    Raises ValueError naming scheme where it is another, size where it is below 1.
    """
    # BEGIN SOLUTION
    rounds = {"data": 2, "zero1": 2, "zero3": 3}
    if scheme not in rounds:
        raise ValueError(f"scheme must be one of {list(rounds)}, got {scheme!r}")
    at_least_one(size=size)
    return rounds[scheme] * (size - 1) / size * parameter_bytes
    # END SOLUTION


def tensor_parallel_bytes(layers: int, activation_bytes: float, size: int) -> float:
    """What a rank sends in one step of `layers` blocks by tensor_parallel: 4 all-reduces of the activations each.

    activation_bytes: of one batch, tokens · d_model numbers. Raises ValueError naming size where it is below 1.
    """
    # BEGIN SOLUTION
    return 4 * layers * all_reduce_bytes(activation_bytes, size)
    # END SOLUTION


def pipeline_bytes(stage: int, stages: int, micro_batches: int, activation_bytes: float) -> float:
    """What a stage sends in one step: activation_bytes for every micro-batch, to each neighbour that it has.

    activation_bytes: of one micro-batch. Outputs go to the next stage, gradients to the one before.
    Raises ValueError as one_f_one_b does.
    """
    # BEGIN SOLUTION
    one_f_one_b(stage, stages, micro_batches)
    return ((stage > 0) + (stage < stages - 1)) * micro_batches * activation_bytes
    # END SOLUTION


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
    # BEGIN SOLUTION
    split = {"data": (1, 1, 1), "zero1": (1, 1, size), "zero2": (1, size, size), "zero3": (size, size, size),
             "tensor": (size, size, size)}
    if scheme not in split:
        raise ValueError(f"scheme must be one of {list(split)}, got {scheme!r}")
    at_least_one(size=size)
    return Memory(*(each * parameters / by for each, by in zip((2, 2, 12), split[scheme])))
    # END SOLUTION


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
        # BEGIN SOLUTION
        if not 0 < scale < math.inf:
            raise ValueError(f"scale must be above 0 and finite, got {scale}")
        if not growth > 1:
            raise ValueError(f"growth must be above 1, got {growth}")
        if not 0 < backoff < 1:
            raise ValueError(f"backoff must be between 0 and 1, got {backoff}")
        at_least_one(interval=interval)
        self.scale, self.growth, self.backoff, self.interval, self.group = scale, growth, backoff, interval, group
        self.steps = 0          # in a row that were finite
        # END SOLUTION

    def unscale(self, parameters: Iterable[Tensor]) -> bool:
        """Divide all gradients by scale, in place; whether all of them are finite, on all ranks of the group.

        Parameters without a gradient are passed over. To be called once a step, before clipping.
        """
        # BEGIN SOLUTION
        gradients = [p.grad for p in parameters if p.grad is not None]
        for gradient in gradients:
            gradient.div_(self.scale)
        finite = all(bool(gradient.isfinite().all()) for gradient in gradients)
        return finite if self.group is None else all(self.group.everyones(finite))
        # END SOLUTION

    def update(self, finite: bool) -> None:
        """Change scale after a step: less where a gradient was not finite, more after interval steps that all were."""
        # BEGIN SOLUTION
        self.steps = self.steps + 1 if finite else 0
        if not finite:
            self.scale *= self.backoff
        elif self.steps == self.interval:
            self.scale, self.steps = self.scale * self.growth, 0
        # END SOLUTION


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
    # BEGIN SOLUTION
    parameters = [p for g in optimizer.param_groups for p in g["params"]]
    optimizer.zero_grad()
    with torch.autocast(inputs.device.type, dtype):
        loss = cross_entropy(widen(model(inputs)), targets)
    (loss * scaler.scale).backward()
    finite, norm = scaler.unscale(parameters), None
    if finite:
        norm = clip_grad_norm(parameters, max_norm).item()
        optimizer.step()
    scaler.update(finite)
    return loss.item(), norm
    # END SOLUTION


class Recompute(torch.autograd.Function):
    """Recompute.apply(run, count, *tensors): run(*tensors[:count]) without a graph; backward runs it again with one.

    tensors: the count inputs, of which all but the first may be None; then every parameter that run uses, so that all
    of them get their gradients.

    To be written here: torch.utils.checkpoint is not used.
    """

    @staticmethod
    def forward(ctx, run: Callable[..., Tensor], count: int, *tensors: Tensor | None) -> Tensor:
        # BEGIN SOLUTION
        ctx.run, ctx.count, ctx.device = run, count, tensors[0].device.type
        ctx.random = random_state()
        ctx.autocast = torch.is_autocast_enabled(ctx.device), torch.get_autocast_dtype(ctx.device)
        ctx.save_for_backward(*tensors)
        return run(*tensors[:count])
        # END SOLUTION

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple:
        # BEGIN SOLUTION
        inputs = [x if x is None else x.detach().requires_grad_(x.requires_grad) for x in ctx.saved_tensors[:ctx.count]]
        tensors = [*inputs, *ctx.saved_tensors[ctx.count:]]
        enabled, dtype = ctx.autocast
        now = random_state()
        set_random_state(ctx.random)
        with torch.enable_grad(), torch.autocast(ctx.device, dtype, enabled=enabled):
            out = (ctx.run(*inputs) * grad).sum()       # out's gradient is grad
        set_random_state(now)
        wanted = [x is not None and x.requires_grad for x in tensors]
        leaves = [x for x, is_wanted in zip(tensors, wanted) if is_wanted]
        found = iter(torch.autograd.grad(out, leaves, allow_unused=True))
        return None, None, *(next(found) if is_wanted else None for is_wanted in wanted)
        # END SOLUTION


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
        # BEGIN SOLUTION
        parameters = [p for p in self.block.parameters() if p.requires_grad]
        return Recompute.apply(lambda *args: self.block(*args, **named), len(inputs), *inputs, *parameters)
        # END SOLUTION


def checkpointed(block: nn.Module) -> Checkpointed:
    """Given: a block that is run again in the backward pass: model.blocks[n] = checkpointed(model.blocks[n])."""
    return Checkpointed(block)
