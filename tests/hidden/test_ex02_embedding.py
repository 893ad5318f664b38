"""Lesson 02 on other shapes, dtypes and extremes."""

import copy

import torch

from grader import accepts, dtypes, points, raises, shares_memory
from grader.course.modes import default_dtype


def test_unembedding_non_contiguous(impl, draw):
    """Unembedding takes an x whose batch axes were swapped, forward and backward."""
    layer = draw.fill(impl.Unembedding(6, 11))
    x = draw(3, 2, 6).transpose(0, 1).requires_grad_()
    scores = layer(x)
    (scores * draw(2, 3, 11)).sum().backward()
    return {"scores": scores, "grad of x": x.grad, "grad of weight": layer.weight.grad}


def test_extreme_ids(impl, draw):
    """The first row and the last row can be read, and a table of one row works."""
    table = draw.fill(impl.Embedding(11, 6))
    one = draw.fill(impl.Embedding(1, 1))
    ends = torch.tensor([0, 10], device=draw.device)
    return {"first and last": table(ends), "one row": one(draw.ints(1, 3))}


def test_scalar_ids_refused(impl, draw):
    """A single id is checked too, and a table of one row refuses 1 and −1."""
    table = draw.fill(impl.Embedding(1, 6))
    ids = draw.ints(1, 1)[0]
    return [raises(ValueError, lambda: table(ids + 1), names="ids"),
            raises(ValueError, lambda: table(ids + 2), names="ids"),
            raises(ValueError, lambda: table(ids - 1), names="ids")]


def test_large_ids_checked(impl, draw):
    """check_ids is exact for bounds past 2²⁴ and 2⁵³, where float32 and float64 no longer hold every number."""
    found = {}
    for bits in (24, 53):
        size = 2**bits + 1 + 2 * int(draw.ints(50, 1))
        ids = torch.tensor([0, size], device=draw.device)
        found[str(size)] = [accepts(lambda: impl.check_ids(ids - ids // 2, size)),
                            raises(ValueError, lambda: impl.check_ids(ids, size), names="ids"),
                            raises(ValueError, lambda: impl.check_ids(ids + 1, size + 1), names="ids")]
    return found


def test_bad_id_is_shown(impl, draw):
    """The message shows the id that is outside, not another one of the same batch."""
    table = draw.fill(impl.Embedding(11, 6))
    bad = 11 + int(draw.ints(80, 1))
    return {str(ids): raises(ValueError, lambda: table(torch.tensor(ids, device=draw.device)), names=shown)
            for ids, shown in [([3, 0, bad], str(bad)), ([3, -bad, 9], str(bad)), ([3, -1, 9], "1")]}


@points(2)
def test_backward_any_rank(impl, draw):
    """embedding_backward takes ids of any number of axes, none included, and empty ids."""
    backward = impl.embedding_backward
    return {"none": backward(draw.ints(5, 1)[0], draw(6), 5),
            "three": backward(draw.ints(5, 2, 1, 3), draw(2, 1, 3, 6), 5),
            "empty": backward(draw.ints(5, 0), draw(0, 6), 5)}


@dtypes("float16", "float64")
def test_backward_dtypes(impl, draw, dtype):
    """embedding_backward returns the dtype of grad_out."""
    return impl.embedding_backward(draw.ints(3, 2, 4), draw(2, 4, 6).to(dtype), 5)


def test_backward_bad_ids(impl, draw):
    """embedding_backward refuses an id that is negative or too large."""
    grad_out = draw(3, 6)
    ids = torch.tensor([0, 1, 2], device=draw.device)
    return {f"ids from {first} on": raises(ValueError, lambda: impl.embedding_backward(ids + first, grad_out, 5),
                                           names="ids") for first in (3, 4 + int(draw.ints(50, 1)), -1)}


def test_unembedding_autograd(impl, draw):
    """Gradients reach Unembedding's input, weight and bias."""
    layer = draw.fill(impl.Unembedding(6, 11, bias=True))
    x = draw(2, 3, 6).requires_grad_()
    (layer(x) * draw(2, 3, 11)).sum().backward()
    return {"grad of x": x.grad, "grad of weight": layer.weight.grad, "grad of bias": layer.bias.grad}


def test_equal_sizes(impl, draw):
    """As many tokens as features: nothing tells a square weight from its transpose, but the numbers."""
    n = 2 + int(draw.ints(6, 1))
    layer = draw.fill(impl.Unembedding(n, n))
    return {"vectors": draw.fill(impl.Embedding(n, n))(draw.ints(n, n, n)), "scores": layer(draw(n, n)),
            "grad of weight": impl.embedding_backward(draw.ints(n, n, n), draw(n, n, n), n)}


def test_tie_again(impl, draw):
    """Tying comes after a forward pass as well as before it, and to another embedding too."""
    unembedding, found = draw.fill(impl.Unembedding(6, 11, bias=True)), []
    for _ in range(2):
        embedding = impl.Embedding(11, 6)
        with torch.no_grad():
            embedding.weight = torch.nn.Parameter(draw(11, 6))
        found += [unembedding(draw(3, 6)), unembedding.tie(embedding), unembedding(draw(3, 6))]
    return found


@points(2)
def test_tie_holds(impl, draw):
    """Tied weights stay one through a step of training, a cast to bfloat16 and a deep copy."""
    pair = torch.nn.ModuleDict({"in": impl.Embedding(11, 6), "out": impl.Unembedding(6, 11)})
    draw.fill(pair)["out"].tie(pair["in"])
    (pair["out"](pair["in"](draw.ints(11, 2, 4))) * draw(2, 4, 11)).sum().backward()
    with torch.no_grad():       # a step of SGD; torch.optim takes a second to import
        for parameter in pair.parameters():
            parameter -= 0.1 * parameter.grad
    twin = copy.deepcopy(pair).to(torch.bfloat16)
    return {"after a step": pair["out"].weight, "still one": pair["in"].weight is pair["out"].weight,
            "the copy is one": shares_memory(twin["in"].weight, twin["out"].weight)}


def test_tie_refused_changes_nothing(impl, draw):
    """After a refused tie both weights are what they were."""
    embedding, unembedding = draw.fill(impl.Embedding(12, 6)), draw.fill(impl.Unembedding(6, 11))
    before = embedding.weight, unembedding.weight
    refused = raises(ValueError, lambda: unembedding.tie(embedding), names="embedding")
    return {"refused": refused, "the embedding's kept": embedding.weight is before[0],
            "the unembedding's kept": unembedding.weight is before[1]}


def test_state_dict(impl, draw):
    """The state dicts hold weight (and bias), with torch's shapes, and nothing else."""
    rows, features = 11 + int(draw.ints(9, 1)), 2 + int(draw.ints(9, 1))
    modules = {"embedding": impl.Embedding(rows, features), "unembedding": impl.Unembedding(features, rows),
               "with bias": impl.Unembedding(features, rows, bias=True)}
    return {name: {key: list(value.shape) for key, value in module.state_dict().items()}
            for name, module in modules.items()}


def test_bad_sizes(impl, draw):
    """A negative size raises a ValueError that names it."""
    bad = -1 - int(draw.ints(50, 1))
    return {f"Embedding({bad}, 4)": raises(ValueError, lambda: impl.Embedding(bad, 4), names="num_embeddings"),
            f"Embedding(4, {bad})": raises(ValueError, lambda: impl.Embedding(4, bad), names="embedding_dim"),
            f"Unembedding({bad}, 4)": raises(ValueError, lambda: impl.Unembedding(bad, 4), names="d_model"),
            f"Unembedding(4, {bad})": raises(ValueError, lambda: impl.Unembedding(4, bad), names="vocab")}


def test_sizes_of_one(impl, draw):
    """An unembedding of one feature, one token, or both, scores as any other does."""
    sizes = [(1, 1), (1, 7), (7, 1)]
    return [draw.fill(impl.Unembedding(*size, bias=True))(draw(2, size[0])) for size in sizes]


def test_default_dtype(impl, draw):
    """Where no dtype is said, a table has torch's default one."""
    n, d = (2 + int(size) for size in draw.ints(9, 2))
    with default_dtype(torch.float64):
        layers = [impl.Embedding(n, d), impl.Unembedding(d, n)]
    return [layer.weight.dtype == torch.float64 for layer in layers], [draw.fill(layer).weight for layer in layers]
