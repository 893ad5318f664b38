"""Whether the tensors of a file are those that a model needs."""

from collections.abc import Mapping

from torch import Tensor


def tensor_problems(
    tensors: Mapping[str, Tensor], wanted: Mapping[str, tuple[int, ...]]
) -> list[str]:
    """Every tensor that is missing, that is not wanted, or that is misshapen: a line each.

    wanted: the shape of each tensor by its name. Of a misshapen one both shapes are told, as in
    (12, 8). No line, an empty list, where all is right.
    """
    problems = [f"missing: {name}" for name in wanted if name not in tensors]
    problems += [f"not in the model: {name}" for name in tensors if name not in wanted]
    return problems + [
        f"misshapen: {name} of {tuple(tensors[name].shape)}, expected {tuple(shape)}"
        for name, shape in wanted.items() if name in tensors and tensors[name].shape != shape]
