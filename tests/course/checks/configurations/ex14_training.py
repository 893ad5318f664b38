"""What the parts of chapter 14 may be given."""

import torch
from hypothesis import strategies as st
from reference.ex03_linear import Linear
from torch import nn


def get_batch(impl, draw):
    tokens = draw.ints(
        "tokens",
        (draw("length", st.integers(1, 30)),),
        200,
        dtypes=(torch.int64, torch.uint8, torch.int32, torch.int16, torch.uint16),
    )
    rng = torch.Generator().manual_seed(draw("seed", (0, 1, 2)))
    inputs, targets = impl.get_batch(tokens, draw.size("batch"), draw.size("seq_len"), rng)
    draw.see("batch", (inputs, targets), [tokens])
    draw.see("memory of their own", inputs.untyped_storage().data_ptr() != targets.untyped_storage().data_ptr())
    draw.see("rng", rng.get_state())


def learning_rate(impl, draw):
    warmup, peak = draw("warmup", st.integers(0, 12)), draw("peak", (1e-3, 1.0, 0.0, 3))
    total = warmup + draw("more", st.integers(0, 20))
    given = {"floor": peak * draw("floor / peak", (0.1, 0.0, 1.0, 0.5))} if draw("with floor", (False, True)) else {}
    draw.asked(impl.learning_rate, draw("step", st.integers(0, 40)), warmup, total, peak, **given)


def parameters_of(draw):
    found = [
        nn.Parameter(draw.tensor(f"p{n}", draw("shape", ((2,), (2, 3), (), (1,), (0,), (3, 2, 1))), grad=False))
        for n in range(draw("parameters", st.integers(0, 4)))
    ]
    for p in found:
        if draw("has a gradient", (True, True, False)):
            p.grad = draw.tensor("gradient", tuple(p.shape), p.dtype, ("normal", "zeros", "large", "small"), grad=False)
    return found


def clip_grad_norm(impl, draw):
    parameters = parameters_of(draw)
    of = iter(parameters) if draw("a generator", (False, True)) else parameters
    norm = impl.clip_grad_norm(of, draw("max_norm", (1.0, 0.1, 1e-6, 100.0, float("inf"))))
    draw.see("norm", norm)
    draw.see("parameters", parameters)
    draw.see("gradients", [p.grad for p in parameters])


def adamw(impl, draw):
    parameters, given = parameters_of(draw), {}
    for name, values in {
        "lr": (0.1, 1e-3, 0.0, 1.0),
        "betas": ((0.9, 0.999), (0.0, 0.5), (0.5, 0.0)),
        "eps": (1e-8, 0.1, 0.0),
        "weight_decay": (0.1, 0.0, 2.0),
    }.items():
        if draw(f"with {name}", (False, True)):
            given[name] = draw(name, values)
    groups = (
        [{"params": parameters[:1], "lr": 0.5}, {"params": parameters[1:]}]
        if draw("groups", (False, True))
        else parameters
    )
    optimizer = impl.AdamW(groups, **given)
    draw.see("options", [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups])
    for _ in range(draw("steps", (1, 2, 3))):
        enabled = []

        def closure():
            enabled.append(torch.is_grad_enabled())
            return 7.5

        draw.see("loss", optimizer.step(closure) if draw("closure", (False, True)) else optimizer.step())
        draw.see("grad enabled in closure", enabled)
        draw.see("parameters", parameters)
        draw.see("gradients", [p.grad for p in parameters])
        draw.see("state", [dict(optimizer.state.get(p, {})) for p in parameters])


def a_model(draw):
    torch.default_generator.manual_seed(0)
    model = nn.Sequential()
    model.add_module("embedding", nn.Embedding(7, 4))
    model.add_module("hidden", Linear(4, 4, bias=True))
    model.add_module("dropout", nn.Dropout(draw("dropout", (0.0, 0.5))))
    model.add_module("head", Linear(4, 7))
    model.train(draw("training", (True, False)))
    model.hidden.train(draw("training within", (True, False)))
    if draw("frozen", (False, True)):
        model.embedding.requires_grad_(False)
    return model


def parameter_groups(impl, draw):
    model = a_model(draw)
    if draw("tied", (False, True)):
        model.head.weight = model.embedding.weight
    model.scale = nn.Parameter(torch.ones(draw("axes", ((), (2,), (1, 2), (1, 1, 2)))))
    names = {id(p): name for name, p in model.named_parameters()}
    groups = impl.parameter_groups(model, draw("weight_decay", (0.1, 0.0, 2)))
    draw.see(
        "groups",
        [
            {"names": [names[id(p)] for p in g["params"]]} | {k: v for k, v in g.items() if k != "params"}
            for g in groups
        ],
    )


def batches_of(draw):
    found = []
    for _ in range(draw("batches", st.integers(1, 3))):
        shape = draw("rows", (1, 2)), draw("seq", (1, 3))
        inputs, targets = draw.ints("inputs", shape, 7), draw.ints("targets", shape, 7, dtypes=(torch.int64,))
        ignored = (
            draw.bools("ignored", shape)
            if draw("some ignored", (False, True))
            else torch.zeros(shape, dtype=torch.bool)
        )
        found.append((inputs, targets.masked_fill(ignored, -100)))
    return found


def train_step(impl, draw):
    model = a_model(draw)
    groups = [{"params": [*model.hidden.parameters()]}, {"params": [*model.head.parameters()]}]
    optimizer = torch.optim.SGD(groups if draw("groups", (False, True)) else model.parameters(), lr=0.5, momentum=0.5)
    batches, given = batches_of(draw), {}
    if draw("with max_norm", (False, True)):
        given["max_norm"] = draw("max_norm", (0.1, 100.0, 1e-3))
    if draw("with loss", (False, True)):
        given["loss"] = lambda logits, targets: logits.square().mean() + (targets != -100).sum()
    if draw("old gradients", (False, True)):
        for p in model.parameters():
            p.grad = torch.ones_like(p)
    for n in range(2):
        torch.default_generator.manual_seed(n)
        draw.see("loss and norm", impl.train_step(model, optimizer, batches, **given))
        draw.see("model", model)
        draw.see("gradients", [p.grad for p in model.parameters()])
    draw.see("batches", batches)


def evaluate(impl, draw):
    model = a_model(draw)
    tokens = draw.ints(
        "tokens", (draw("length", st.integers(2, 25)),), 7, dtypes=(torch.int64, torch.uint8, torch.int32)
    )
    given = {"batch": draw("batch", (1, 2, 3))} if draw("with batch", (False, True)) else {}
    modes = []
    model.head.register_forward_hook(
        lambda *_: modes.append([torch.is_grad_enabled(), [m.training for m in model.modules()]])
    )
    shapes = []
    model.register_forward_pre_hook(lambda _, x: shapes.append((tuple(x[0].shape), str(x[0].dtype))))
    draw.see("loss", impl.evaluate(model, tokens, draw("seq_len", (1, 2, 3, 8)), **given))
    draw.see("while", [modes, shapes])
    draw.see("model and tokens", [model, tokens])


def bits_per_byte(impl, draw):
    draw.asked(
        impl.bits_per_byte,
        draw("loss", (1.0, 0.0, 3.5)),
        draw("tokens", st.integers(1, 9)),
        draw("bytes", st.integers(1, 9)),
    )


def checkpoint(impl, draw):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / draw("name", ("a.pt", "run", "a.b.c"))
        path = str(path) if draw("a string", (False, True)) else path
        model, rng = a_model(draw), torch.Generator().manual_seed(3)
        optimizer = torch.optim.AdamW(model.parameters())
        impl_step = draw("step", (0, 7))
        draw.see("saved", impl.save_checkpoint(path, model, optimizer, impl_step, rng))
        draw.see("files", sorted(x.name for x in Path(folder).iterdir()))
        torch.default_generator.manual_seed(99)
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
        rng.manual_seed(5)
        draw.see("step", impl.load_checkpoint(path, model, optimizer, rng))
        draw.see("after", [model, rng.get_state(), torch.default_generator.get_state()])
