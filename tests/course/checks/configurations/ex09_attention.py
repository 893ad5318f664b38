"""What the parts of chapter 09 may be given."""

from hypothesis import strategies as st
from reference.ex07_rope import RoPE


def causal_mask(impl, draw):
    q_len = draw.size("q_len")
    draw.asked(impl.causal_mask, q_len)
    draw.asked(impl.causal_mask, q_len, q_len + draw("more keys", st.integers(0, 4)))


def qk(draw):
    return draw.tensor("q", "*batch q head_dim"), draw.tensor("k", "*batch k head_dim")


def attention_weights(impl, draw):
    q, k = qk(draw)
    draw.asked(impl.attention_weights, q, k, draw.mask("mask", (*q.shape[:-1], k.shape[-2])))


def attention(impl, draw):
    q, k = qk(draw)
    v, mask = draw.tensor("v", "*batch k value_dim"), draw.mask("mask", (*q.shape[:-1], k.shape[-2]))
    draw.asked(impl.scaled_dot_product_attention, q, k, v, mask, draw("dropout", (0.0, 0.3, 0.9)))
    draw.asked(impl.scaled_dot_product_attention, q, k, v, mask)


def multi_head(impl, draw):
    heads, rope, causal = draw("heads", (1, 2, 3, 4)), draw("rope", (False, True)), draw("causal", (False, True))
    head_dim = draw("head_dim", (2, 4) if rope else (1, 2, 3, 4))
    d_model, given = heads * head_dim, {"causal": causal}
    if rope:
        given["rope"] = RoPE(head_dim, 12, layout=draw("layout", ("half", "interleaved")))
    if draw("says bias", (False, True)):
        given["bias"] = draw("bias", (True, False))
    if draw("with dropout", (False, True)):
        given["dropout"] = draw("dropout", (0.3, 0.0))
    module = draw.module(impl.MultiHeadAttention, d_model, heads, **given)
    x = draw.tensor("x", (*draw.shape("*batch seq"), d_model))
    asked = {}
    if not causal and not rope and draw("with context", (False, True)):
        asked["context"] = draw.tensor("context", (*draw.shape("*batch context_seq"), d_model))
    source = asked.get("context", x)
    if draw("with positions", (False, True)):
        asked["positions"] = draw.ints("positions", draw("axes of positions", ("seq", "*batch seq")), 12)
    asked["mask"] = draw.mask("mask", (*x.shape[:-2], heads, x.shape[-2], source.shape[-2]))
    draw.asked(module, x, **asked)
    module.train(not module.training)
    draw.asked(module, x, **asked)


def attention_flops(impl, draw):
    draw.asked(impl.attention_flops, *(draw(name, st.integers(0, 10**7)) for name in ("batch", "heads", "q", "k", "d")))
