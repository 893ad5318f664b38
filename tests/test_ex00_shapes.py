"""What lesson 00 asks of strides, of the two head rearrangements and of the dot products."""

from grader import dtypes, points, raises, shares_memory

FORBIDDEN = {"row_major_strides": {"torch.Tensor.stride"}}


def sizes(draw, n: int) -> list[int]:
    """n different sizes from 2 to 8."""
    return [2 + int(i) for i in draw.uniform(7).argsort()[:n]]


def test_strides(impl, draw):
    """The stride of an axis is the product of all the sizes to its right.

    In shape (2, 3, 4) a step along the first axis skips 3 · 4 numbers and a step along the last
    skips 1. Return them as a tuple, in the order of the axes.
    """
    return {str(shape): impl.row_major_strides(shape) for shape in (tuple(sizes(draw, n)) for n in (3, 2))}


def test_strides_other_ranks(impl, draw):
    """row_major_strides takes any number of axes: none, one, four.

    Nothing multiplied is 1, so the last axis needs no case of its own. No axes, no strides: ().
    """
    return {str(shape): impl.row_major_strides(shape) for shape in (tuple(sizes(draw, n)) for n in (0, 1, 4))}


def test_strides_bad_size(impl, draw):
    """A size below 1 raises a ValueError that names shape.

    Look at the sizes before you multiply them, and put the word shape and what you got into the
    message.
    """
    size = 2 + int(draw.ints(7, 1))
    return {str(shape): raises(ValueError, lambda: impl.row_major_strides(shape), names="shape")
            for shape in [(size, 0, 4), (3, -size)]}


@points(2)
def test_split(impl, draw):
    """split_heads gives head 0 the first head_dim features of each token, head 1 the next ones.

    Cut d_model into (heads, head_dim) first, with the heads outside; then move the heads in front
    of the tokens. In einops both are one pattern, in which the brackets are the cut.
    """
    heads, head_dim = sizes(draw, 2)
    return impl.split_heads(draw(2, 9, heads * head_dim), heads)


def test_split_batch_ranks(impl, draw):
    """split_heads takes any number of axes before seq: none or two.

    Count axes from the right, or let "..." stand for all that comes before.
    """
    return {"(5, 12)": impl.split_heads(draw(5, 12), 3),
            "(2, 3, 5, 8)": impl.split_heads(draw(2, 3, 5, 8), 4)}


def test_split_is_a_view(impl, draw):
    """split_heads copies no number: its result lies in the memory of x.

    Cutting an axis in two and swapping two axes only change sizes and strides. Leave out
    .contiguous() and .clone().
    """
    x = draw(2, 5, 12)
    heads = impl.split_heads(x, 3)
    x.copy_(draw(2, 5, 12))
    return {"lies in the memory of x": shares_memory(x, heads), "after x was written over": heads}


def test_split_bad_heads(impl, draw):
    """heads that are below 1 or do not divide d_model raise a ValueError that names heads.

    Look at heads before anything else, and ask for heads < 1 before you take the remainder: by 0
    that is an error of its own.
    """
    x = draw(4, 12)
    return {f"heads={heads}": raises(ValueError, lambda: impl.split_heads(x, heads), names="heads")
            for heads in (5 + 2 * int(draw.ints(3, 1)), 0)}


@points(2)
def test_merge(impl, draw):
    """merge_heads puts the heads of one token side by side, head 0 first.

    First move the heads back behind the tokens, then join heads and head_dim to one axis.
    """
    heads, head_dim = sizes(draw, 2)
    return impl.merge_heads(draw(2, heads, 9, head_dim))


def test_merge_batch_ranks(impl, draw):
    """merge_heads takes any number of axes before heads: none or two.

    Count axes from the right, or let "..." stand for all that comes before.
    """
    return {"(3, 5, 4)": impl.merge_heads(draw(3, 5, 4)),
            "(2, 1, 3, 5, 2)": impl.merge_heads(draw(2, 1, 3, 5, 2))}


@points(2)
@dtypes("float32", "bfloat16", "float16", "float64")
def test_pairwise(impl, draw, dtype):
    """pairwise_dot holds at [i, j] the dot product of row i of q with row j of k.

    The axis that both share, d, is summed away; the axes that only one has, q and k, stay.
    """
    return impl.pairwise_dot(draw(2, 5, 4).to(dtype), draw(2, 3, 4).to(dtype))


def test_pairwise_batch_ranks(impl, draw):
    """pairwise_dot takes any number of axes before q and k, and pairs only within one batch entry.

    Sentence 0 and sentence 1 do not meet, nor do head 0 and head 1. Let "..." stand for the axes
    in front, however many there are.
    """
    return {"no batch": impl.pairwise_dot(draw(5, 4), draw(3, 4)),
            "2 sentences, 3 heads": impl.pairwise_dot(draw(2, 3, 5, 4), draw(2, 3, 6, 4))}


def test_pairwise_gradients(impl, draw):
    """Gradients reach q and k through pairwise_dot.

    torch.tensor([...]) around results, .item(), .detach() and .data cut them off.
    """
    q, k = draw(2, 5, 4).requires_grad_(), draw(2, 3, 4).requires_grad_()
    dots = impl.pairwise_dot(q, k)
    if dots.requires_grad:
        (dots * draw(2, 5, 3)).sum().backward()
    return {"grad of q": q.grad, "grad of k": k.grad}
