"""Lesson 12 on other shapes, dtypes and corners."""

import torch
from torch import nn

from grader import accepts, dtypes, points, raises


class _Half(nn.Module):
    """Half of what it reads, for a norm or a sublayer."""

    def forward(self, x, **named):
        return 0.5 * x


class _Says(nn.Module):
    """Always the same, whatever it reads."""

    def __init__(self, said):
        super().__init__()
        self.said = said

    def forward(self, x, **named):
        return self.said


def _pre_norm(impl, d_model, heads):
    return impl.PreNormBlock(
        impl.LayerNorm(d_model), impl.MultiHeadAttention(d_model, heads, causal=True),
        impl.LayerNorm(d_model), impl.MLP(d_model, 2 * d_model, "silu"))


def _grads(block):
    """Of all parameters but the keys' biases: softmax cancels those, and their gradient is 0."""
    return {f"grad of {name}": p.grad for name, p in block.named_parameters()
            if not name.endswith("k_proj.bias")}


@dtypes("float32", "bfloat16", "float16")
def test_pre_norm_keeps_the_dtype(impl, draw, dtype):
    """A pre-norm block computes in the dtype of x and gives it back."""
    block = impl.PreNormBlock(_Half(), _Half(), _Half(), _Half(), dropout=0.5).eval()
    return block((draw.ints(32, 2, 3, 4) - 16).to(dtype))


def test_pre_norm_keeps_the_digits_of_the_stream(impl, draw):
    """Sublayers that answer in half precision take no digits from a wider stream: sums have its dtype."""
    said = {}
    for dtype in (torch.bfloat16, torch.float16):
        parts = [_Says((draw.ints(32, 2, 3, 4) - 16).to(dtype)) for _ in range(2)]
        block = impl.PreNormBlock(_Half(), parts[0], _Half(), parts[1])
        said |= {f"{wide} and {dtype}": block(draw(2, 3, 4).to(wide)) for wide in (torch.float32, torch.float64)}
    return said


@points(2)
def test_pre_norm_three_deep(impl, draw):
    """Three pre-norm blocks in a row, one token or many, give the right stream and gradient."""
    blocks = draw.fill(nn.Sequential(
        _pre_norm(impl, 12, 3), _pre_norm(impl, 12, 3), _pre_norm(impl, 12, 3)))
    x = draw(1, 7, 12, scale=4.0).requires_grad_()
    y = blocks(x)
    (y * draw(1, 7, 12)).sum().backward()
    return {"seven tokens": y, "grad of x": x.grad, "one token": blocks(draw(3, 1, 12))}


def test_pre_norm_mask_with_positions(impl, draw):
    """A mask reaches a real attention, causal or not, beside positions that it has no use for."""
    block = draw.fill(_pre_norm(impl, 8, 2))
    mask = torch.ones(2, 1, 1, 6, dtype=torch.bool, device=draw.device)
    mask[0, ..., :3] = False
    return block(draw(2, 6, 8), mask=mask, positions=torch.arange(6, device=draw.device))


@points(2)
def test_post_norm_gradients(impl, draw):
    """Gradients reach x and every parameter of a post-norm block, through both norms."""
    block, x = draw.fill(impl.PostNormBlock(8, 4, 10)), draw(3, 4, 8).requires_grad_()
    (block(x) * draw(3, 4, 8)).sum().backward()
    return {"grad of x": x.grad,
            **_grads(block)}


@points(2)
def test_cross_gradients(impl, draw):
    """Gradients reach x, the context and every parameter of a cross block."""
    block = draw.fill(impl.CrossBlock(8, 4, 10, activation="silu"))
    x, context = draw(2, 4, 8).requires_grad_(), draw(2, 3, 8).requires_grad_()
    (block(x, context) * draw(2, 4, 8)).sum().backward()
    return {"grad of x": x.grad, "grad of the context": context.grad,
            **_grads(block)}


def test_nothing_to_see(impl, draw):
    """A token that may see nothing, or a context of which nothing may be seen, gives no NaN."""
    none = torch.zeros(1, 1, 1, 4, dtype=torch.bool, device=draw.device)
    x, context = draw(2, 4, 8), draw(2, 4, 8)
    return {"post-norm": draw.fill(impl.PostNormBlock(8, 2, 12))(x, mask=none),
            "cross": draw.fill(impl.CrossBlock(8, 2, 12))(x, context, context_mask=none)}


@dtypes("bfloat16", "float16")
def test_blocks_keep_the_dtype(impl, draw, dtype):
    """A block cast to half precision answers in it."""
    x, context = draw(2, 5, 8).to(dtype), draw(2, 3, 8).to(dtype)
    said = [draw.fill(impl.PostNormBlock(8, 2, 12)).to(dtype)(x),
            draw.fill(impl.CrossBlock(8, 2, 12)).to(dtype)(x, context)]
    return [[str(out.dtype), bool(out.isfinite().all())] for out in said]


def test_cross_eps_and_views(impl, draw):
    """norm_eps reaches all three norms; x and context may be views with their axes exchanged."""
    block = draw.fill(impl.CrossBlock(8, 2, 12, norm_eps=0.5))
    x, context = draw(5, 2, 8, scale=0.3).transpose(0, 1), draw(2, 8, 3).mT
    return {"forward": block(x, context), "norm1": block.norm1(draw(3, 8)),
            "norm2": block.norm2(draw(3, 8)), "norm3": block.norm3(draw(3, 8))}


def test_pre_norm_of_a_view(impl, draw):
    """A batch whose axes were exchanged gives what its copy gives, in a pre-norm and a post-norm block."""
    x = draw(3, 2, 6).transpose(0, 1)
    return {"pre-norm": draw.fill(_pre_norm(impl, 6, 2))(x), "post-norm": draw.fill(impl.PostNormBlock(6, 3, 5))(x)}


def test_sizes_of_one(impl, draw):
    """A block of one feature, one head and one hidden number works, on one token; sizes of 0 are refused."""
    said = {}
    for kind, context in ((impl.PostNormBlock, ()), (impl.CrossBlock, (draw(1, 1, 1),))):
        block, name = draw.fill(kind(1, 1, 1)), kind.__name__
        said[name] = block(draw(1, 1, 1), *context)
        said |= {f"{name}, {size}": raises(ValueError, lambda: kind(**{"d_model": 1, "heads": 1, "d_ff": 1, size: 0}))
                 for size in ("d_model", "heads", "d_ff")}
    return {**said, "one layer": accepts(lambda: impl.scaled_residual_init(_pre_norm(impl, 1, 1), 1))}


def test_scaled_init_names(impl, draw):
    """Only modules whose whole name is o_proj or down are scaled, each once, at any depth, with any layers."""
    shared = impl.MLP(4, 6, "gelu", bias=False)
    model = draw.fill(nn.ModuleDict({
        "downsample": nn.Linear(4, 4), "my_o_proj": nn.Linear(4, 4), "o_projection": nn.Linear(4, 4),
        "a": nn.Sequential(nn.ModuleDict({"down": nn.Linear(4, 4)})),
        "first": shared, "second": shared}))
    impl.scaled_residual_init(model, 1)
    impl.scaled_residual_init(model, 48)
    tops, layers = {"o_proj": impl.MultiHeadAttention(4, 2), "down": impl.MLP(4, 6, "relu")}, 2 + int(draw.ints(40))
    for top in tops.values():       # the module that is given is itself the parent of what is scaled
        impl.scaled_residual_init(draw.fill(top), layers)
    return {**{name: 1 * p.detach() for name, p in model.named_parameters()},
            **{f"given itself, {name}": 1 * getattr(top, name).weight.detach() for name, top in tops.items()}}


def test_bad_sizes_and_words(impl, draw):
    """Sizes and words that no part can be made of are refused with the part's own ValueError."""
    said = {}
    for kind in (impl.PostNormBlock, impl.CrossBlock):
        said |= {f"{kind.__name__}, {name}": raises(
                     ValueError, lambda: kind(**{"d_model": 8, "heads": 2, "d_ff": 12, name: value}),
                     names=name)
                 for name, value in (("heads", 2 * int(draw.ints(9)) + 3), ("d_ff", -int(draw.ints(9))),
                                     ("activation", draw.text(9)))}
    for layers in (-1 - int(draw.ints(9)), 0, 1):
        def scale(layers=layers):
            impl.scaled_residual_init(nn.Linear(2, 2), layers)
        said[f"{layers} layers, nothing to scale"] = accepts(scale) if layers > 0 \
            else raises(ValueError, scale, names="layers")
    return said
