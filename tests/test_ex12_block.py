"""What lesson 12 asks of the three blocks and of the scaled init."""

import torch
from torch import nn

from grader import accepts, points, raises, shapes

FORBIDDEN = dict.fromkeys(("PreNormBlock", "PostNormBlock", "CrossBlock"), {
    "torch.nn.Transformer", "torch.nn.TransformerEncoder", "torch.nn.TransformerEncoderLayer",
    "torch.nn.TransformerDecoder", "torch.nn.TransformerDecoderLayer",
    "torch.nn.MultiheadAttention", "torch.nn.functional.multi_head_attention_forward"})


class _Part(nn.Module):
    """Stands in for a norm or a sublayer: gives `scale` times what it reads, and remembers it."""

    def __init__(self, scale):
        super().__init__()
        self.scale, self.got, self.named = scale, "nothing", {}

    def forward(self, x, *rest, **named):
        self.got, self.named = 1 * x, named
        return self.scale * x


class _Gives(nn.Module):
    """Stands in for a sublayer that gives the same number everywhere."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, x, *rest, **named):
        return torch.full_like(x, self.value)


class _KnowsNoCache(nn.Module):
    """Stands in for an attention of lesson 09, whose forward has no cache."""

    def forward(self, x, context=None, mask=None, positions=None):
        return 0.5 * x


class _EmptyCache:
    """A cache that holds nothing yet."""

    def __len__(self):
        return 0


def _shapes(module):
    return shapes(module.named_parameters(remove_duplicate=False))


def _real(impl, draw):
    """A pre-norm block made of the parts of earlier chapters."""
    return draw.fill(impl.PreNormBlock(
        impl.LayerNorm(8), impl.MultiHeadAttention(8, 2, bias=True),
        impl.LayerNorm(8), impl.MLP(8, 12, "gelu")))


def _grads(block):
    """Of all parameters but the keys' biases: softmax cancels those, and their gradient is 0."""
    return {f"grad of {name}": p.grad for name, p in block.named_parameters()
            if not name.endswith("k_proj.bias")}


def _causal(draw, seq):
    return torch.ones(seq, seq, dtype=torch.bool, device=draw.device).tril()


def _what_is_added(block, x, *rest):
    """What a block in training adds to x, where the number 1 should be dropped or become 1.25."""
    added = block(x, *rest) - x
    kept = added > 1
    return {"smallest and largest": torch.stack([added.min(), added.max()]),
            "each row drops its own": bool((kept[1:] != kept[:-1]).any()),
            "some are dropped": bool((~kept).any()), "some are kept": bool(kept.any())}


def test_pre_norm_keeps_its_parts(impl, draw):
    """PreNormBlock keeps the four modules it is given as norm1, attention, norm2 and feed_forward.

    Assign them to self under these names. They are modules already: make no new ones, copy none.
    """
    one, other = (int(n) + 2 for n in draw.ints(9, 2))
    parts = {"norm1": nn.LayerNorm(one), "attention": nn.Linear(one, other),
             "norm2": nn.LayerNorm(other), "feed_forward": nn.Linear(other, one)}
    block = impl.PreNormBlock(**parts)
    return {"parameters": _shapes(block),
            **{f"{name} is the one given": getattr(block, name, None) is part
               for name, part in parts.items()}}


@points(2)
def test_pre_norm_what_each_part_reads(impl, draw):
    """norm1 reads x, attention norm1's output; norm2 the sum, and feed_forward norm2's output.

    The parts here multiply by 2, 10, 3 and 100, so that each shows in what the next one reads.
    """
    parts = {"norm1": _Part(2), "attention": _Part(10), "norm2": _Part(3),
             "feed_forward": _Part(100)}
    impl.PreNormBlock(**parts)(draw(2, 3, 4))
    return {f"{name} reads": part.got for name, part in parts.items()}


@points(2)
def test_pre_norm_adds_to_the_stream(impl, draw):
    """The output is x itself plus what attention adds plus what feed_forward adds.

    Here attention adds 1 and feed_forward 10, whatever they read. The norms make a copy for the
    sublayers to read; no norm lies on the way from x to the output.
    """
    halve = [_Part(0.5), _Part(0.25)]
    block = impl.PreNormBlock(halve[0], _Gives(1.0), halve[1], _Gives(10.0))
    return block(draw(2, 3, 4))


@points(3)
def test_pre_norm_forward(impl, draw):
    """PreNormBlock with LayerNorm, MultiHeadAttention and MLP: two norms, two sublayers, two sums.

    x ← x + attention(norm1(x)), then x ← x + feed_forward(norm2(x)), where the second line reads
    and adds to the x that the first one made.
    """
    return _real(impl, draw)(draw(2, 5, 8))


def test_pre_norm_mask_and_positions(impl, draw):
    """mask and positions reach attention under these names.

    Hand them on as mask=mask, positions=positions: by place they would mean other things to an
    attention that has a context.
    """
    attention = _Part(0.5)
    block = impl.PreNormBlock(nn.Identity(), attention, nn.Identity(), _Gives(0.0))
    mask = draw.ints(2, 2, 1, 3, 3).bool()
    block(draw(2, 3, 4), mask=mask, positions=draw.ints(9, 2, 3))
    return {name: 1 * attention.named.get(name, torch.zeros(0)) for name in ("mask", "positions")}


@points(2)
def test_pre_norm_cache(impl, draw):
    """A cache reaches attention as cache=…, also one that is still empty.

    Ask `cache is None`. An empty cache may count as False, and the first tokens would be lost.
    """
    said = {}
    for name, cache in (("a cache", object()), ("an empty cache", _EmptyCache())):
        attention = _Part(0.5)
        block = impl.PreNormBlock(nn.Identity(), attention, nn.Identity(), _Gives(0.0))
        mask = draw.ints(2, 2, 1, 3, 3).bool()
        block(draw(2, 3, 4), mask=mask, cache=cache)
        said[f"{name} arrives"] = attention.named.get("cache") is cache
        said[f"the mask beside {name}"] = 1 * attention.named.get("mask", torch.zeros(0))
    return said


def test_pre_norm_without_a_cache(impl, draw):
    """Without a cache, attention is not called with one: it may be an attention that knows none.

    MultiHeadAttention has no argument called cache. A dictionary of arguments, empty or with the
    cache in it, can be handed over with **.
    """
    block = impl.PreNormBlock(nn.Identity(), _KnowsNoCache(), nn.Identity(), _Gives(0.0))
    return block(draw(2, 3, 4))


@points(2)
def test_pre_norm_dropout(impl, draw):
    """While training, dropout falls on what a sublayer adds, not on the sum.

    One sublayer adds 1, the other 0, p is 0.2: at each place the block adds 0 or 1.25. Drop the
    sum, and the stream itself gets holes.
    """
    def block(attention, feed_forward):
        return impl.PreNormBlock(nn.Identity(), _Gives(attention), nn.Identity(),
                                 _Gives(feed_forward), dropout=0.2)
    return {"attention's": _what_is_added(block(1.0, 0.0), draw(4, 20, 8)),
            "feed_forward's": _what_is_added(block(0.0, 1.0), draw(4, 20, 8))}


def test_pre_norm_gradients(impl, draw):
    """Gradients reach x, directly and through both sublayers, and every parameter.

    A .data, .detach() or torch.no_grad() on the way cuts them off.
    """
    block, x = _real(impl, draw), draw(6, 4, 8).requires_grad_()
    (block(x) * draw(6, 4, 8)).sum().backward()
    return {"grad of x": x.grad,
            **_grads(block)}


def test_post_norm_parameters(impl, draw):
    """PostNormBlock has attention, norm1, feed_forward and norm2, all with biases.

    MultiHeadAttention has biases only if it is told bias=True. The MLP has them unless told not to.
    """
    heads, head_dim, d_ff = (int(n) + 2 for n in draw.ints(4, 3))
    return _shapes(impl.PostNormBlock(heads * head_dim, heads, d_ff))


@points(3)
def test_post_norm_forward(impl, draw):
    """PostNormBlock: x ← norm1(x + attention(x)), then x ← norm2(x + feed_forward(x)).

    The sublayers read x as it is. The norm comes after the sum, and its output is the new x, for
    the second line as well.
    """
    block = draw.fill(impl.PostNormBlock(8, 2, 12))
    return {"relu": draw.fill(impl.PostNormBlock(8, 2, 12, activation="relu"))(draw(2, 5, 8)),
            "gelu, if not told": block(draw(2, 5, 8))}


def test_post_norm_mask(impl, draw):
    """The mask reaches attention: here a causal one, and one that hides a row's first tokens.

    Hand it on by name, mask=mask: an attention's second argument is the context.
    """
    block = draw.fill(impl.PostNormBlock(8, 2, 12))
    padded = torch.ones(2, 1, 1, 5, dtype=torch.bool, device=draw.device)
    padded[1, ..., :2] = False
    return {"causal": block(draw(2, 5, 8), mask=_causal(draw, 5)),
            "padding": block(draw(2, 5, 8), mask=padded)}


def test_post_norm_eps(impl, draw):
    """norm_eps reaches both norms.

    LayerNorm's second argument. Small inputs show it: here the variance and eps are of one size.
    """
    block = draw.fill(impl.PostNormBlock(8, 2, 12, norm_eps=0.5))
    norms = {name: getattr(block, name) for name in ("norm1", "norm2")}
    return {"forward": block(draw(2, 5, 8, scale=0.3)),
            **{name: norm(draw(3, 8)) for name, norm in norms.items()}}


@points(2)
def test_post_norm_dropout(impl, draw):
    """While training, dropout falls on what each sublayer gives, before the sum and the norm.

    The norms are taken out here, one sublayer gives 1 and the other 0, p is 0.2: at each place the
    block adds 0 or 1.25.
    """
    said = {}
    for wanted in ("attention", "feed_forward"):
        block = impl.PostNormBlock(8, 2, 12, dropout=0.2)
        block.norm1, block.norm2 = nn.Identity(), nn.Identity()
        for name in ("attention", "feed_forward"):
            setattr(block, name, _Gives(float(name == wanted)))
        said[wanted] = _what_is_added(block, draw(4, 20, 8))
    return said


@points(2)
def test_eval_drops_nothing(impl, draw):
    """In eval mode nothing is dropped: a block with dropout gives what one without gives, at every call.

    Dropout is a module, which block.eval() reaches; F.dropout drops in eval mode too, unless it is told
    training=self.training. Masks, norms and sums are the same in both modes, and with gradients off.
    """
    x, context, mask = draw(2, 5, 8), draw(2, 3, 8), _causal(draw, 5)
    hidden = torch.arange(3, device=draw.device) != draw.ints(3, 2, 1, 1, 1)
    said = {}
    for name, block, rest in (
            ("pre-norm", impl.PreNormBlock(impl.LayerNorm(8), impl.MultiHeadAttention(8, 2, bias=True),
                                           impl.LayerNorm(8), impl.MLP(8, 12, "gelu"), dropout=0.5), {}),
            ("post-norm", impl.PostNormBlock(8, 2, 12, dropout=0.5), {}),
            ("cross", impl.CrossBlock(8, 2, 12, dropout=0.5), {"context": context, "context_mask": hidden})):
        draw.fill(block).eval()
        said[name] = block(x, mask=mask, **rest)
        with torch.no_grad():
            said[f"{name}, no_grad"] = block(draw(2, 5, 8), mask=mask, **rest)
    return said


def test_dropout_inside(impl, draw):
    """The same dropout is also given to the sublayers, which drop weights and hidden numbers.

    MultiHeadAttention and MLP take dropout=dropout. The answers: do two calls of a part differ?
    """
    x, said = draw(2, 6, 8), {}
    for kind in (impl.PostNormBlock, impl.CrossBlock):
        block = draw.fill(kind(8, 2, 12, dropout=0.5))
        for name in ("attention", "cross_attention", "feed_forward"):
            if part := getattr(block, name, None):
                said[f"{kind.__name__}'s {name}"] = bool((part(x) != part(x)).any())
    return said


def test_cross_parameters(impl, draw):
    """CrossBlock has attention, norm1, cross_attention, norm2, feed_forward and norm3, with biases.

    Two attentions with weights of their own, three norms, one MLP.
    """
    heads, head_dim, d_ff = (int(n) + 2 for n in draw.ints(4, 3))
    block = impl.CrossBlock(heads * head_dim, heads, d_ff)
    return {"parameters": _shapes(block), "how many tensors": len(list(block.parameters()))}


@points(3)
def test_cross_forward(impl, draw):
    """CrossBlock: self-attention, cross-attention, MLP, each followed by its sum and its norm.

    The second attention takes its queries from x, as it is after norm1, and keys and values from
    the context. The context itself is handed in as it is, and never changed.
    """
    block = draw.fill(impl.CrossBlock(8, 2, 12, activation="relu"))
    return {"seven of context": block(draw(2, 5, 8), draw(2, 7, 8)),
            "five of context": block(draw(2, 5, 8), draw(2, 5, 8))}


@points(2)
def test_cross_masks(impl, draw):
    """mask is for self-attention, context_mask for cross-attention.

    mask says which tokens of x a token of x may see; context_mask, which tokens of the context.
    """
    block = draw.fill(impl.CrossBlock(8, 2, 12))
    hidden = torch.ones(2, 1, 1, 5, dtype=torch.bool, device=draw.device)
    hidden[0, ..., 3:] = False
    x, context = draw(2, 5, 8), draw(2, 5, 8)
    return {"mask": block(x, context, mask=_causal(draw, 5)),
            "context_mask": block(x, context, context_mask=hidden)}


def test_cross_dropout(impl, draw):
    """While training, dropout falls on what each of the three sublayers gives, before the sum.

    The norms are taken out here, one sublayer gives 1 and the others 0, p is 0.2.
    """
    said, names = {}, ("attention", "cross_attention", "feed_forward")
    for wanted in names:
        block = impl.CrossBlock(8, 2, 12, dropout=0.2)
        block.norm1, block.norm2, block.norm3 = nn.Identity(), nn.Identity(), nn.Identity()
        for name in names:
            setattr(block, name, _Gives(float(name == wanted)))
        said[wanted] = _what_is_added(block, draw(4, 20, 8), draw(4, 3, 8))
    return said


@points(2)
def test_scaled_init(impl, draw):
    """scaled_residual_init divides the weights of every o_proj and down by √(2 · layers).

    named_modules() walks through all depths. The last part of a name, after the last dot, says
    which module it is: the whole part, so that a my_o_proj is left alone. Biases and all other weights stay.
    """
    layers = draw.fill(nn.ModuleList(nn.ModuleDict({
        "attention": impl.MultiHeadAttention(4, 2, bias=True),
        "feed_forward": impl.MLP(4, 6, "gelu"), "my_o_proj": nn.Linear(3, 2)}) for _ in range(2)))
    impl.scaled_residual_init(layers, 8)
    return {name: 1 * p.detach() for name, p in layers.named_parameters()}


def test_scaled_init_in_place(impl, draw):
    """The parameters stay the same objects, and can be trained afterwards.

    Change the numbers in place, under torch.no_grad(): an optimizer may hold these tensors already.
    """
    mlp = draw.fill(impl.MLP(4, 6, "gelu"))
    before = mlp.down.weight
    impl.scaled_residual_init(mlp, 2)
    mlp(draw(3, 4)).sum().backward()
    return {"the same object": mlp.down.weight is before, "a leaf": mlp.down.weight.is_leaf,
            "gradient": mlp.down.weight.grad}


def test_scaled_init_bad_layers(impl, draw):
    """A number of layers below 1 raises a ValueError that names layers, and no weight is changed.

    Look at it before the loop.
    """
    mlp = draw.fill(impl.MLP(4, 6, "gelu"))
    return {"0": raises(ValueError, lambda: impl.scaled_residual_init(mlp, 0), names="layers"),
            "-1": raises(ValueError, lambda: impl.scaled_residual_init(mlp, -1), names="layers"),
            "down": 1 * mlp.down.weight.detach()}


def test_bad_dropout(impl, draw):
    """A dropout outside [0, 1) raises a ValueError as the block is made.

    The Dropout of lesson 08 does it; so make one in __init__.
    """
    parts, said = [nn.Identity() for _ in range(4)], {}
    for p in [1.0, -0.1, *(3 * draw.uniform(5) - 1).tolist()]:
        for name, make in {"PreNormBlock": lambda: impl.PreNormBlock(*parts, dropout=p),
                           "PostNormBlock": lambda: impl.PostNormBlock(4, 2, 3, dropout=p),
                           "CrossBlock": lambda: impl.CrossBlock(4, 2, 3, dropout=p)}.items():
            said[f"{name}, {p:.3f}"] = accepts(make) if 0 <= p < 1 else raises(ValueError, make)
    return said
