"""What the parts of chapter 00 may be given."""

from hypothesis import strategies as st


def row_major_strides(impl, draw):
    draw.asked(impl.row_major_strides, draw("shape", st.lists(st.integers(1, 9), max_size=5)))
    draw.asked(impl.row_major_strides, tuple(draw("shape", st.lists(st.integers(1, 9), max_size=3))))


def split_heads(impl, draw):
    heads, head_dim = draw.size("heads"), draw.size("head_dim")
    x = draw.tensor("x", (*draw.shape("*batch seq"), heads * head_dim))
    draw.asked(impl.split_heads, x, heads)
    draw.asked(impl.merge_heads, draw.tensor("x", "*batch heads seq head_dim"))
