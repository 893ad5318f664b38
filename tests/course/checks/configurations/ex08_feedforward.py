"""What the parts of chapter 08 may be given."""

def activations(impl, draw):
    x = draw.tensor("x", "*shape")
    draw.asked(impl.sigmoid, x)
    draw.asked(impl.silu, x)
    draw.asked(impl.gelu, x)
    draw.asked(impl.gelu, x, draw("approximate", ("none", "tanh")))


def dropout(impl, draw):
    layer, x = draw.module(impl.Dropout, draw("p", (0.5, 0.0, 0.1, 0.99, 0.01))), draw.tensor("x", "*shape")
    if layer.training and layer.p == 0:     # x itself or a copy: only in eval mode is it said which
        draw.asked(lambda x: 1 * layer(x), x)
    else:
        draw.asked(layer, x)


def mlp(impl, draw):
    d_model = draw.size("d_model")
    given = {"dropout": draw("dropout", (0.0, 0.3))} if draw("with dropout", (False, True)) else {}
    if draw("says bias", (False, True)):
        given["bias"] = draw("bias", (True, False))
    module = draw.module(
        impl.MLP, d_model, draw.size("d_ff"), draw("activation", ("relu", "gelu", "gelu_tanh", "silu")), **given
    )
    draw.asked(module, draw.tensor("x", "*batch d_model"))


def swiglu(impl, draw):
    d_model = draw.size("d_model", (1, 2, 3, 5, 24, 25, 48, 96, 100))
    module = draw.module(impl.SwiGLU, d_model, *((draw.size("d_ff"),) if draw("with d_ff", (True, False)) else ()))
    draw.asked(module, draw.tensor("x", "*batch d_model"))
