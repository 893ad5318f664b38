"""What lesson 02 asks of Embedding, its backward pass, Unembedding and tied weights."""

import torch

from grader import accepts, dtypes, points, raises, shape, shapes, shares_memory, tolerance
from grader.course.modes import again

TABLES = {"torch.nn.Embedding", "torch.nn.EmbeddingBag", "torch.nn.functional.embedding",
          "torch.nn.functional.embedding_bag", "torch.embedding", "torch.embedding_bag"}
FORBIDDEN = {"Embedding": TABLES, "embedding_backward": TABLES,
             "Unembedding": {"torch.nn.Linear", "torch.nn.LazyLinear", "torch.nn.functional.linear"}}


def sizes(draw, n: int) -> list[int]:
    """n different sizes from 2 to 9."""
    return [2 + int(i) for i in draw.uniform(8).argsort()[:n]]


def test_table_parameters(impl, draw):
    """Embedding has one parameter, weight, of shape (num_embeddings, embedding_dim).

    A tensor trains only if it is wrapped in nn.Parameter and assigned to self.
    """
    table = impl.Embedding(*sizes(draw, 2))
    return {name: {"shape": shape(p), "requires_grad": p.requires_grad}
            for name, p in table.named_parameters()}


@tolerance(0.02)
def test_table_spread(impl, draw):
    """Embedding's weight starts with standard deviation 0.02.

    Measured over 128,000 numbers, whose standard deviation is known to 0.2 %. (Cutting the
    normal at ±3σ takes 1.3 % off it, for you and the reference alike.)
    """
    return impl.Embedding(1000, 128).weight.std()


def test_table_truncated(impl, draw):
    """No number of Embedding's weight starts further than 3σ = 0.06 from zero, some beyond 2.9σ.

    nn.init.trunc_normal_ takes the ends as the numbers a and b, not as multiples of std.
    """
    largest = impl.Embedding(1000, 128).weight.abs().max()
    return {"all within 3σ": bool(largest <= 0.06 * 1.0001), "some beyond 2.9σ": bool(largest > 0.058),
            "some beyond 25σ": bool(largest > 0.5)}


def test_table_dtype(impl, draw):
    """Embedding(..., dtype=...) makes its weight in that dtype; float32 where none is given.

    Hand dtype on to the function that makes the tensor.
    """
    asked = [None, torch.float32, torch.bfloat16, torch.float16, torch.float64]
    rows, features = sizes(draw, 2)
    tables = {dtype: impl.Embedding(rows, features, dtype=dtype).weight for dtype in asked}
    return {f"dtype={dtype}": f"{weight.dtype} {shape(weight)}" for dtype, weight in tables.items()}


def test_table_device(impl, draw):
    """Embedding(..., device=...) makes its weight there.

    Hand device on as you do dtype. The "meta" device, asked for here, holds shapes only.
    """
    weight = impl.Embedding(*sizes(draw, 2), device="meta").weight
    return {"device": weight.device.type, "shape": shape(weight)}


@points(2)
@dtypes("float32", "bfloat16", "float16")
def test_lookup(impl, draw, dtype):
    """Embedding gives row ids[p] of the weight at every place p, unchanged.

    Index the weight's first axis with the ids. Nothing is scaled or rounded.
    """
    table = draw.fill(impl.Embedding(11, 6)).to(dtype)
    return table(draw.ints(11, 2, 5))


def test_lookup_ranks(impl, draw):
    """ids may have any number of axes; the result has one more, of size embedding_dim, at the end.

    A scalar id gives one vector of shape (embedding_dim,).
    """
    table = draw.fill(impl.Embedding(11, 6))
    return {"()": table(draw.ints(11, 1)[0]), "(5,)": table(draw.ints(11, 5)),
            "(2, 1, 3)": table(draw.ints(11, 2, 1, 3))}


def test_lookup_gradient(impl, draw):
    """The gradient reaches the rows that were read, and adds up where an id is repeated.

    A .data, .detach() or torch.no_grad() on the way cuts it off.
    """
    table = draw.fill(impl.Embedding(5, 6))
    ids = draw.ints(3, 2, 4)
    loss = (table(ids) * draw(2, 4, 6)).sum()
    return {"grad of weight": torch.autograd.grad(loss, list(table.parameters()))}


@points(2)
def test_lookup_other_rows(impl, draw):
    """A lookup reads its rows and no others: a NaN or inf elsewhere in the table stays there.

    Index the rows. Multiplying one-hot rows with the table reads every row, and 0 · inf is NaN.
    """
    table = draw.fill(impl.Embedding(11, 6))
    with torch.no_grad():
        table.weight[9], table.weight[10] = float("nan"), float("inf")
    return table(draw.ints(9, 2, 5))


@points(2)
def test_ids_int32(impl, draw):
    """int32 ids work as int64 ids do, forward and backward.

    Smaller data files hold them. weight[ids], index_select and index_add_ take both.
    """
    table, ids = draw.fill(impl.Embedding(11, 6)), draw.ints(11, 2, 5).int()
    return {"vectors": table(ids), "grad of weight": impl.embedding_backward(ids, draw(2, 5, 6), 11)}


def test_ids_empty(impl, draw):
    """No ids give no vectors: ids of shape (2, 0) give a result of shape (2, 0, embedding_dim).

    The smallest of no numbers does not exist: ask ids.numel() before you ask for it.
    """
    rows, features, batch = sizes(draw, 3)
    vectors = draw.fill(impl.Embedding(rows, features))(draw.ints(rows, batch, 0))
    return {"shape": list(vectors.shape), "dtype": str(vectors.dtype)}


def test_ids_too_large(impl, draw):
    """An id of num_embeddings or more raises a ValueError that names ids.

    num_embeddings itself is already too large: the rows are 0 … num_embeddings − 1. Look before
    you index: on a GPU torch's own check leaves CUDA unusable.
    """
    rows = 3 + int(draw.ints(20, 1))
    table, ids = draw.fill(impl.Embedding(rows, 6)), draw.ints(rows, 2, 150)
    one, grad_out = ids.clone(), draw(2, 150, 6)
    one[-1, -1] = rows
    found = {f"id {i} of {rows} rows": accepts(lambda: table(ids * 0 + i)) for i in (0, rows // 2, rows - 1)}
    return {**found, f"id {rows} of {rows} rows": raises(ValueError, lambda: table(one), names="ids"),
            "in eval too": raises(ValueError, lambda: table.eval()(one), names="ids"),
            "far too large": raises(ValueError, lambda: table(ids + 50_000), names="ids"),
            "in embedding_backward": raises(
                ValueError, lambda: impl.embedding_backward(one, grad_out, rows), names="ids")}


def test_ids_negative(impl, draw):
    """A negative id raises a ValueError that names ids.

    Indexing alone would read −1 as the last row, in silence.
    """
    table, ids, grad_out = draw.fill(impl.Embedding(11, 6)), draw.ints(11, 2, 3), draw(2, 3, 6)
    found = {}
    for bad in (-1, -2 - int(draw.ints(100, 1))):
        one = torch.where(ids == ids.min(), bad, ids)
        found[f"id {bad}"] = raises(ValueError, lambda: table(one), names="ids")
        found[f"id {bad} in embedding_backward"] = raises(
            ValueError, lambda: impl.embedding_backward(one, grad_out, 11), names="ids")
    return found


def test_lookup_copies(impl, draw):
    """The vectors are copies, of a single id too: writing to them leaves the table as it was.

    weight[id] of a scalar id is a view of the table. index_select over the flattened ids copies,
    as does weight[...] with ids on at least one axis.
    """
    table, found = draw.fill(impl.Embedding(11, 6)), {}
    with torch.no_grad():
        for name, ids in {"a single id": draw.ints(11, 1)[0], "five ids": draw.ints(11, 5)}.items():
            vectors = table(ids)
            vectors.fill_(0)
            found[f"the table after {name}"] = table.weight.clone()
    return found


def test_lookup_again(impl, draw):
    """Embedding reads the weight that it has now: in eval as in training, and after it has changed.

    Keep nothing from an earlier call. A gradient flows in eval too.
    """
    return again(draw, draw.fill(impl.Embedding(7, 6)), draw.ints(7, 2, 3))


def test_ids_swapped_axes(impl, draw):
    """ids and gradients may be tensors whose axes were swapped, so not contiguous in memory.

    view wants numbers that lie side by side. rearrange and reshape copy where they must.
    """
    ids = draw.ints(11, 3, 5, 2).transpose(0, 2)
    return {"vectors": draw.fill(impl.Embedding(11, 6))(ids),
            "grad of weight": impl.embedding_backward(ids, draw(3, 5, 2, 6).transpose(0, 2), 11)}


@points(2)
def test_backward_repeated(impl, draw):
    """embedding_backward adds up the gradients of a repeated id.

    Eight ids from three rows: some row is read several times, and each reading adds its part.
    """
    return impl.embedding_backward(draw.ints(3, 8), draw(8, 6), 3)


def test_backward_unread(impl, draw):
    """embedding_backward gives every row of the table a gradient: zeros where no id pointed.

    Start from zeros of shape (num_embeddings, d_model). These ids are all different and leave
    the last rows unread.
    """
    return impl.embedding_backward(torch.tensor([4, 0, 2], device=draw.device), draw(3, 6), 9)


@points(2)
def test_backward_half(impl, draw):
    """embedding_backward adds up in float32 and returns grad_out's dtype, bfloat16 here.

    bfloat16 keeps 8 binary digits of a number: past 512 its steps are 4 wide. 2,000 gradients
    between 1 and 2 of one id, added one by one in bfloat16, stop growing there.
    """
    grad_out = (1 + draw.uniform(2000, 3)).bfloat16()
    some, ids = draw(8, 3).bfloat16(), draw.ints(2, 8)
    once = impl.embedding_backward(ids, some.float(), 2).bfloat16()
    return {"2,000 of one id": impl.embedding_backward(draw.ints(1, 2000), grad_out, 2),
            "rounded once, at the end": bool((impl.embedding_backward(ids, some, 2) == once).all())}


def test_backward_float64(impl, draw):
    """embedding_backward adds up float64 gradients in float64.

    The given widen(x) widens half precision and leaves float64 alone. These
    are whole numbers near 2²⁶ that nearly cancel; of those float32 holds only every eighth.
    """
    grad_out = draw.ints(100, 8, 3).double()
    grad_out[0] += 2**26
    grad_out[-1] -= 2**26
    return impl.embedding_backward(draw.ints(1, 8), grad_out, 2)


def test_unembedding_parameters(impl, draw):
    """Unembedding has weight of shape (vocab, d_model), and with bias=True zeros of shape (vocab,).

    Row v belongs to token v, as in Embedding: only so can the two share it.
    """
    features, rows = sizes(draw, 2)
    layer = impl.Unembedding(features, rows, bias=True)
    return {"without bias": shapes(impl.Unembedding(features, rows).named_parameters()),
            "with bias": shapes(layer.named_parameters()), "bias": layer.bias}


@tolerance(0.02)
def test_unembedding_start(impl, draw):
    """Unembedding's weight starts as Embedding's does: normal with σ = 0.02, cut at ±3σ.

    Measured over 128,000 numbers, whose standard deviation is known to 0.2 %.
    """
    weight = impl.Unembedding(128, 1000).weight
    return {"spread": weight.std(), "all within 3σ": bool(weight.abs().max() <= 0.06 * 1.0001)}


@points(2)
@dtypes("float32", "bfloat16", "float16")
def test_unembedding_scores(impl, draw, dtype):
    """Unembedding computes y = x weightᵀ: one score per token, for x of any number of axes.

    The score of token v is the dot product of x with row v. No softmax: scores go out as they
    are.
    """
    layer = draw.fill(impl.Unembedding(6, 11)).to(dtype)
    return {"(6,)": layer(draw(6).to(dtype)), "(2, 3, 6)": layer(draw(2, 3, 6).to(dtype))}


def test_unembedding_bias(impl, draw):
    """With bias=True, Unembedding computes y = x weightᵀ + b.

    The bias is added to every vector of scores; broadcasting does it.
    """
    return draw.fill(impl.Unembedding(6, 11, bias=True))(draw(2, 3, 6))


def test_unembedding_wrong_width(impl, draw):
    """An x whose last axis is not d_model raises a ValueError that names x.

    Compare x.shape[-1] with the weight's second axis before multiplying.
    """
    layer = draw.fill(impl.Unembedding(6, 11))
    return {f"{width} features": raises(ValueError, lambda: layer(draw(2, width)), names="x")
            for width in (11, 1, 7 + int(draw.ints(20, 1)))}


def test_unembedding_again(impl, draw):
    """Unembedding computes with the weight that it has now: in eval as in training, and after it has changed.

    Keep no transpose from an earlier call. The bias and the gradient are for eval too.
    """
    return again(draw, draw.fill(impl.Unembedding(6, 11, bias=True)), draw(2, 3, 6))


def _pair(impl, draw):
    """An embedding and an unembedding with different numbers, and the two as one module."""
    pair = draw.fill(torch.nn.ModuleDict({"in": impl.Embedding(11, 6), "out": impl.Unembedding(6, 11)}))
    return pair["in"], pair["out"], pair


@points(2)
def test_tie(impl, draw):
    """tie makes both modules hold the same Parameter object, with the embedding's numbers.

    Not a copy, and not a new Parameter around the same numbers: an optimizer would find two.
    """
    embedding, unembedding, pair = _pair(impl, draw)
    unembedding.tie(embedding)
    return {"the same Parameter": embedding.weight is unembedding.weight,
            "the same storage": shares_memory(embedding.weight, unembedding.weight),
            "numbers to train": sum(p.numel() for p in pair.parameters()),
            "weight of the unembedding": unembedding.weight}


@points(2)
def test_tie_gradient(impl, draw):
    """A tied weight's gradient is the sum of both uses: reading rows, and scoring every row.

    Autograd adds them up by itself once both modules hold one Parameter.
    """
    embedding, unembedding, _ = _pair(impl, draw)
    unembedding.tie(embedding)
    (unembedding(embedding(draw.ints(11, 2, 4))) * draw(2, 4, 11)).sum().backward()
    return {"grad of the embedding's weight": embedding.weight.grad,
            "grad of the unembedding's weight": unembedding.weight.grad,
            "the same storage": shares_memory(embedding.weight, unembedding.weight)}


def test_tie_bias(impl, draw):
    """tie changes the weight only: a bias stays the unembedding's own, and is used.

    Assign weight, and nothing else.
    """
    embedding = draw.fill(impl.Embedding(11, 6))
    unembedding = draw.fill(impl.Unembedding(6, 11, bias=True))
    unembedding.tie(embedding)
    return {"scores": unembedding(draw(3, 6)),
            "parameters": sorted(name for name, _ in unembedding.named_parameters())}


def test_tie_wrong_shape(impl, draw):
    """Tying weights of different shapes raises a ValueError that names embedding.

    Compare the two shapes before you assign anything.
    """
    mine, other, features, fewer = sizes(draw, 4)

    def tie(vocab, d_model):
        embedding, unembedding = impl.Embedding(vocab, d_model), impl.Unembedding(features, mine)
        refused = raises(ValueError, lambda: unembedding.tie(embedding), names="embedding")
        return {"refused": refused, "shape afterwards": list(unembedding.weight.shape)}

    return {"other vocab": tie(other, features), "other d_model": tie(mine, fewer),
            "sides swapped": tie(features, mine)}


def test_sizes(impl, draw):
    """A size below 1 raises a ValueError that names it; a size of 1 is a good size.

    Look at the sizes before anything is made of them, and put the argument's name into the message.
    """
    kinds = {"Embedding": (impl.Embedding, "num_embeddings", "embedding_dim"),
             "Unembedding": (impl.Unembedding, "d_model", "vocab")}
    found, size = {}, 2 + int(draw.ints(50, 1))
    for name, (kind, first, second) in kinds.items():
        found[f"{name}(0, {size})"] = raises(ValueError, lambda: kind(0, size), names=first)
        found[f"{name}({size}, 0)"] = raises(ValueError, lambda: kind(size, 0), names=second)
    return {**found, "sizes of 1": accepts(lambda: (impl.Embedding(1, 1), impl.Unembedding(1, 1)))}
