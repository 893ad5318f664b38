"""What the parts of chapter 10 may be given."""

from hypothesis import strategies as st
from reference.ex07_rope import RoPE


def repeat_kv(impl, draw):
    draw.asked(impl.repeat_kv, draw.tensor("x", "*batch kv_heads seq head_dim"), draw("groups", (1, 2, 3)))


def grouped_attention(impl, draw):
    kv_heads, groups, batch = draw("kv_heads", (1, 2, 3)), draw("groups", (1, 2, 3)), draw.shape("*batch")
    q = draw.tensor("q", (*batch, kv_heads * groups, *draw.shape("q head_dim")))
    k = draw.tensor("k", (*batch, kv_heads, *draw.shape("k head_dim")))
    v = draw.tensor("v", (*batch, kv_heads, *draw.shape("k value_dim")))
    draw.asked(impl.grouped_attention, q, k, v, draw.mask("mask", (*q.shape[:-1], k.shape[-2])))


def sliding_window_mask(impl, draw):
    q_len = draw.size("q_len")
    draw.asked(
        impl.sliding_window_mask, q_len, q_len + draw("more keys", st.integers(0, 6)), draw("window", st.integers(1, 9))
    )


def module(impl, draw):
    kv_heads, groups = draw("kv_heads", (1, 2, 3)), draw("groups", (1, 2))
    heads, rope, causal = kv_heads * groups, draw("rope", (False, True)), draw("causal", (True, False))
    head_dim = draw("head_dim", (2, 4) if rope else (1, 2, 3, 4))
    given = {
        "qk_norm": draw("qk_norm", (False, True)),
        "qkv_bias": draw("qkv_bias", (False, True)),
        "o_bias": draw("o_bias", (False, True)),
        "causal": causal,
    }
    if draw("own head_dim", (False, True)):
        given["head_dim"], d_model = head_dim, draw.size("d_model")
    else:
        d_model = heads * head_dim
    if rope:
        given["rope"] = RoPE(head_dim, 16)
    if causal and draw("with window", (False, True)):
        given["window"] = draw("window", (1, 2, 3, 9))
    if draw("own eps", (False, True)):
        given["norm_eps"] = draw("norm_eps", (0.1, 0.0))
    module = draw.module(impl.GroupedQueryAttention, d_model, heads, kv_heads, **given)
    x = draw.tensor("x", (*draw.shape("batch seq"), d_model))
    asked = {}
    if draw("with positions", (False, True)):
        asked["positions"] = draw.ints("positions", draw("axes of positions", ("seq", "batch seq")), 16)
    draw.asked(module.project, x, **asked)
    asked["mask"] = draw.mask("mask", (x.shape[0], heads, x.shape[1], x.shape[1]))
    draw.asked(module, x, **asked)
    q = draw.tensor("q", (x.shape[0], heads, draw.size("q"), head_dim))
    k, v = (draw.tensor(name, (x.shape[0], kv_heads, q.shape[2] + draw.size("more keys"), head_dim)) for name in "kv")
    columns = k.shape[2] + draw("dropped keys", (0, 1, 3))
    draw.asked(module.attend, q, k, v, draw.mask("mask", (x.shape[0], heads, q.shape[2], columns)))
