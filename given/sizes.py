"""What many chapters ask of their arguments, and the dtype they compute in."""

import torch
from torch import Tensor


def at_least_one(**sizes: float) -> None:
    """Raise a ValueError that names the first size below 1, or NaN: at_least_one(d_model=d_model, d_ff=d_ff)."""
    for name, size in sizes.items():
        if not size >= 1:
            raise ValueError(f"{name} must be at least 1, got {size}")


def widen(x: Tensor) -> Tensor:
    """x in at least float32: half precision is widened, float32 and float64 come back as they are, uncopied."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def mask_must_fit(mask: Tensor, shape: tuple[int, ...]) -> None:
    """Raise a ValueError that names mask unless it broadcasts to shape and makes it no larger."""
    sizes = zip(reversed(mask.shape), reversed(shape))
    if mask.ndim > len(shape) or any(m not in (1, size) for m, size in sizes):
        raise ValueError(f"mask of shape {tuple(mask.shape)} does not fit scores of shape {tuple(shape)}")


def cache_must_fit(storage: Tensor, k: Tensor, v: Tensor) -> None:
    """Raise a ValueError that names k or v if it cannot be written into storage, (batch, heads, length, head_dim).

    k and v must have the dtype, batch, heads and head_dim of the storage, and equally many
    positions. Nor may they record gradients: storage is written in place, and a graph through it
    would be wrong and grow with every token.
    """
    batch, kv_heads, _, head_dim = storage.shape
    wanted = (batch, kv_heads, k.shape[2], head_dim)
    for name, x in (("k", k), ("v", v)):
        if x.shape != wanted:
            raise ValueError(f"{name} must have the shape {wanted}, got {tuple(x.shape)}")
        if x.dtype != storage.dtype:
            raise ValueError(f"{name} must be {storage.dtype} as the cache is, got {x.dtype}")
        if torch.is_grad_enabled() and x.requires_grad:
            raise ValueError(f"{name} requires grad: a cache is for inference, so call the model "
                             "under torch.no_grad()")
