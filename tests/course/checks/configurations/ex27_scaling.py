"""What the parts of chapter 27 may be given."""

import math

import torch
from hypothesis import strategies as st
from reference import ex13_transformer
from reference.ex02_embedding import Unembedding
from torch import nn

F64, KINDS = torch.float64, ("normal", "whole", "small", "large")


def newton_schulz(impl, draw):
    batch = draw.shape("*batch")
    x = draw.tensor("matrix", (*batch, draw("rows", (3, 1, 2, 5)), draw("columns", (4, 1, 3, 7))), F64,
                    ("normal", "zeros", "large", "small"), grad=False)
    given = {"steps": draw("steps", (1, 0, 3, 5))} if draw("with steps", (False, True)) else {}
    draw.see("result", impl.newton_schulz(x, **given))
    draw.see("matrix", x)


def shape_factor(impl, draw):
    given = {"shape": draw("shape", ("original", "match_rms_adamw", "none"))} if draw("named", (True, False)) else {}
    draw.asked(impl.shape_factor, draw("rows", st.integers(1, 30)), draw("columns", st.integers(1, 30)), **given)


def muon(impl, draw):
    parameters = [nn.Parameter(draw.tensor(f"p{n}", draw("sides", ((2, 3), (3, 2), (1, 4), (5, 1))), F64, grad=False))
                  for n in range(draw("parameters", (1, 2, 3)))]
    given = {}
    for name, values in {"lr": (0.1, 0.0, 1), "momentum": (0.9, 0.0, 0.5), "weight_decay": (0.1, 0.0, 2),
                         "nesterov": (True, False), "steps": (5, 0, 1), "shape": ("original", "match_rms_adamw"),
                         "dtype": (None, torch.float64)}.items():
        if draw(f"with {name}", (False, True)):
            given[name] = float(value) if isinstance(value := draw(name, values), int) and name in (
                "lr", "weight_decay") else value
    groups = parameters
    if draw("groups", (False, True)):
        groups = [{"params": parameters[:1], "lr": 0.5, "momentum": 0.3}, {"params": parameters[1:], "steps": 1}]
    optimizer = impl.Muon(groups, **given)
    draw.see("options", [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups])
    for _ in range(draw("steps made", (1, 2, 3))):
        for p in parameters:
            p.grad = draw.tensor("gradient", tuple(p.shape), F64, KINDS, grad=False) if draw(
                "has a gradient", (True, True, False)) else None
        enabled = []

        def closure():
            enabled.append(torch.is_grad_enabled())
            return 7.5
        draw.see("loss", optimizer.step(closure) if draw("closure", (False, True)) else optimizer.step())
        draw.see("after", [enabled, parameters, [p.grad for p in parameters]])
        draw.see("state", [dict(optimizer.state.get(p, {})) for p in parameters])


def config_of(draw, width=1):
    return ex13_transformer.ModelConfig(
        vocab_size=5, d_model=4 * width, layers=draw("layers", (1, 2)), heads=2 * width, kv_heads=width, head_dim=2,
        d_ff=3 * width, max_seq_len=6, tie_embeddings=draw("tied", (False, True)), qkv_bias=draw("bias", (False, True)),
        qk_norm=draw("qk_norm", (False, True)), positions=draw("positions", ("rope", "learned")))


def names_of(model, groups):
    names = {id(p): name for name, p in model.named_parameters()}
    return [{"names": [names[id(p)] for p in group["params"]]} | {k: v for k, v in group.items() if k != "params"}
            for group in groups]


def muon_and_adamw(impl, draw):
    model = draw.module(ex13_transformer.Transformer, config_of(draw))
    draw.see("hidden", [[name, p] for name, p in impl.hidden_matrices(model).items()])
    given = {"weight_decay": draw("weight_decay", (0.3, 0.0))} if draw("with decay", (False, True)) else {}
    if draw("with options", (False, True)):
        given |= {"momentum": 0.5, "shape": "match_rms_adamw"}
    both = impl.muon_and_adamw(model, 0.02, 0.003, **given)
    draw.see("groups", names_of(model, both.param_groups))


def wsd(impl, draw):
    warmup, decay, peak = draw("warmup", st.integers(0, 6)), draw("decay", st.integers(0, 6)), draw("peak", (1.0, 0.3))
    total = warmup + decay + draw("more", st.integers(0, 8))
    given = {"floor": peak * draw("floor / peak", (0.1, 0.0, 1.0))} if draw("with floor", (False, True)) else {}
    if draw("with fall", (False, True)):
        given["fall"] = draw("fall", ("linear", "sqrt"))
    draw.asked(impl.wsd, draw("step", st.integers(0, 22)), warmup, decay, total, peak, **given)


def mup(impl, draw):
    width = draw("times as wide", (2, 1, 3))
    config, base = config_of(draw, width), draw("base", (1, 2))
    small = ex13_transformer.ModelConfig(vocab_size=5, d_model=4 * base, layers=config.layers, heads=2 * base,
                                         kv_heads=base, head_dim=2, d_ff=3 * base, max_seq_len=9)
    draw.asked(impl.width_ratio, config, small)
    model = draw.module(ex13_transformer.Transformer, config)
    given = {"init": draw("init", (2, 0.5)), "output": draw("output", (4.0, 1))} if draw("constants", (0, 1)) else {}
    decay = {"weight_decay": draw("weight_decay", (0.3, 0.0))} if draw("with decay", (False, True)) else {}
    draw.see("groups", names_of(model, impl.mup_groups(model, small, draw("lr", (0.1, 0.0)), **decay)))
    same = impl.with_mup(model, small, **given)
    draw.see("model", [same is model, dict(model.state_dict())])
    draw.see("logits", model(draw.ints("ids", (2, 3), 5)))


def scaled_unembedding(impl, draw):
    old = draw.module(Unembedding, 3, draw("vocab", (5, 1)), bias=draw("bias", (False, True)))
    new = impl.ScaledUnembedding(old, draw("scale", (0.5, 2, 0)))
    draw.see("output", new(draw.tensor("x", (*draw.shape("*batch"), 3), torch.float32)))
    draw.see("parts", [new.weight is old.weight, new.bias is old.bias, new.scale, list(new.state_dict())])


def law_of(impl, draw):
    return impl.ScalingLaw(draw("E", (1.8, 0.5)), draw("A", (30.0, 400.0)), draw("B", (50.0, 10.0)),
                           draw("alpha", (0.3, 0.5)), draw("beta", (0.35, 0.2)))


def runs_of(draw):
    n, d = torch.tensor([1e5, 4e5, 2e6], dtype=F64), torch.tensor([1e6, 5e6, 2e7, 9e7], dtype=F64)
    return [x.flatten() for x in torch.meshgrid(n[:draw("sizes", (3, 2))], d[:draw("tokens", (3, 4))], indexing="ij")]


def budget(impl, draw):
    law, n = law_of(impl, draw), draw("n", (10**6, 1e7))
    draw.see("loss", law.loss(n, draw("d", (10**8, 3.5e7))))
    draw.see("losses", law.loss(*runs_of(draw)))
    draw.asked(impl.training_flops, n, draw("d", (10**8, 3.5e7, 14 * 10**18)))
    draw.asked(impl.optimal, draw("flops", (1e18, 10**24, 1e9)), law)
    draw.asked(impl.tokens_for, draw("loss", (3.0, 5, 2.5, 0.1)), n, law)


def law_error(impl, draw):
    n, d = runs_of(draw)
    shape = (*draw.shape("*batch"), 5)
    loss = 2 + draw.tensor("loss", tuple(n.shape), F64, ("normal", "small"), grad=False).abs()
    given = {"delta": draw("delta", (0.1, 1e-3, 1e-5))} if draw("with delta", (False, True)) else {}
    draw.asked(impl.law_error, draw.tensor("parameters", shape, F64, ("normal", "large"), grad=False), n, d, loss,
               **given)


def fit(impl, draw):
    """Losses that a law gives, from a start near it; what else comes in is refused."""
    (n, d), law = runs_of(draw), law_of(impl, draw)
    loss = law.loss(n, d)
    which = draw("runs", ("all", "four", "a loss of 0", "tokens that follow"))
    if which == "four":
        n, d, loss = n[[0, 4, -1, 1]], d[[0, 4, -1, 1]], loss[[0, 4, -1, 1]]
    if which == "a loss of 0":
        loss = loss * 0
    if which == "tokens that follow":
        d = 20 * n
    start = torch.tensor([[math.log(law.E), math.log(1.05 * law.A), math.log(law.B), law.alpha, law.beta]], dtype=F64)
    try:
        found = impl.fit_scaling_law(n, d, loss, starts=start, tries=draw("tries", (1, 2)))
        draw.see("near", (found.loss(n, d) - loss).abs() < 0.01)        # its numbers lie in a flat valley
    except ValueError as error:
        draw.see("refused", str(error).split()[0])


def critical_batch(impl, draw):
    small = draw("small", (2, 1.5, 8))
    norms = [1 + draw.tensor(name, (draw(f"how many {name}", (3, 1, 5)),), F64, ("small", "normal"), grad=False).abs()
             for name in ("small_norms", "big_norms")]
    try:
        draw.see("scale", impl.critical_batch(norms[0] * draw("times", (2, 1, 9)), norms[1], small,
                                              small * draw("big / small", (8, 2, 1))))
    except ValueError as error:
        draw.see("refused", str(error).split()[0])
    draw.asked(impl.batch_costs, draw("batch", (8, 0.5, 0, -1)), draw("critical", (64, 1.5, 0)))
