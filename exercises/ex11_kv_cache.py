"""KV cache: never compute a key twice.

A token's key and value do not depend on what comes after it. Kept, they make the next token cost
one query instead of a whole forward pass.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from given.sizes import at_least_one, cache_must_fit, mask_must_fit

from .ex07_rope import RoPE
from .ex10_grouped_query_attention import GroupedQueryAttention


class KVCache:
    """Keys and values of all positions so far, in storage that is allocated once.

    keys and values: (batch, kv_heads, capacity, head_dim) each. length: how many positions are
    filled, always the first ones. Without a dtype it is torch's default, float32.

    Raises ValueError naming a size that is below 1.
    """

    def __init__(
        self,
        batch: int,
        kv_heads: int,
        capacity: int,
        head_dim: int,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ):
        raise NotImplementedError

    def update(
        self, k: Float[Tensor, "_ _ q _"], v: Float[Tensor, "_ _ _ _"]
    ) -> tuple[
        Float[Tensor, "batch kv_heads k head_dim"], Float[Tensor, "batch kv_heads k head_dim"]
    ]:
        """Write q new positions behind the old ones, and return all length + q, old and new.

        k, v: (batch, kv_heads, q, head_dim). What comes back are views of the storage: nothing is
        allocated or copied but the new positions.

        Raises ValueError, and leaves the cache as it was, where k or v does not fit (see
        `cache_must_fit`), or names capacity where there is no room for q more.
        """
        raise NotImplementedError

    def rewind(self, n: int) -> None:
        """Drop the last n positions: the next update writes over them.

        Raises ValueError naming n where it is below 0 or above length.
        """
        raise NotImplementedError

    def reset(self) -> None:
        """Forget every position. The storage stays."""
        raise NotImplementedError


class RollingKVCache:
    """Keys and values of the last `window` positions, for attention that sees no further.

    keys and values: (batch, kv_heads, window, head_dim) each, a ring: position p lies in slot
    p mod window, over position p − window, which nobody will ask for again. length: how many
    positions were ever seen, so that the next one is known; it may be above window.

    Raises ValueError naming a size that is below 1. Jiang et al., 2023 (arXiv 2310.06825), section
    2.
    """

    def __init__(
        self,
        batch: int,
        kv_heads: int,
        window: int,
        head_dim: int,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ):
        raise NotImplementedError

    def update(
        self, k: Float[Tensor, "_ _ q _"], v: Float[Tensor, "_ _ _ _"]
    ) -> tuple[
        Float[Tensor, "batch kv_heads k head_dim"], Float[Tensor, "batch kv_heads k head_dim"]
    ]:
        """Take in q new positions, and return what their queries may see, oldest first.

        These are the last window − 1 positions before the new ones (fewer while the cache is
        young) and the q new ones. The first new query sees itself and window − 1 others. q may be
        larger than window.

        Raises ValueError, and leaves the cache as it was, where k or v does not fit (see
        `cache_must_fit`).
        """
        raise NotImplementedError

    def reset(self) -> None:
        """Forget every position. The storage stays."""
        raise NotImplementedError


class CachedAttention(GroupedQueryAttention):
    """Grouped-query attention that can go on where its cache ends.

    The same arguments, parameters and numbers as its parent. Prompt first and then token by
    token, or in chunks of any size, it gives what one forward pass over everything gives.

    To be written here: torch's scaled_dot_product_attention and MultiheadAttention are not used.
    """

    rope: RoPE | None       # the parent's: project has turned the keys that go into a cache

    def forward(
        self,
        x: Float[Tensor, "batch seq d_model"],
        mask: Bool[Tensor, "..."] | None = None,
        positions: Int[Tensor, "batch seq"] | Int[Tensor, " seq"] | None = None,
        cache: KVCache | RollingKVCache | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        """x: only the new tokens. Their keys, turned to their positions, and values join the cache.

        positions: where the new tokens stand; cache.length, cache.length + 1, … where left out.
        mask: True = may look, ANDed with the causal or sliding-window mask. It covers all keys so
        far, old and new, also those that a rolling cache has dropped: broadcastable to (batch,
        heads, seq, cache.length + seq).
        Rows of unequal length are padded on the left: give positions for each row, and a mask of
        (batch, 1, 1, keys) that hides the padding. Without a cache it is the parent's forward.

        With a cache, raises ValueError and leaves the cache as it was: naming mask where it does
        not broadcast, cache where it rolls over fewer positions than this layer's window sees,
        causal where the layer is not causal; and what the parent and the cache raise.
        """
        raise NotImplementedError


def cache_bytes(
    layers: int,
    kv_heads: int,
    head_dim: int,
    seq_len: int,
    batch: int,
    bytes_per_value: float,
) -> float:
    """How many bytes the caches of a model take: 2 · layers · batch · kv_heads · seq_len ·
    head_dim numbers, where the 2 are keys and values, of bytes_per_value each.

    Raises ValueError naming the first size below 1, or bytes_per_value where it is not above 0.
    """
    raise NotImplementedError
