"""What the parts of chapter 26 may be given."""

import math

import torch
from hypothesis import strategies as st
from torch import nn

from given.ranks import run_threads

FLOATS = (torch.float32, torch.float64, torch.bfloat16)
KINDS = ("normal", "zeros", "whole", "large")


def tensors(draw, label, size, shape, dtype):
    """A tensor for each rank."""
    return [draw.tensor(f"{label} of rank {rank}", shape, dtype, KINDS, grad=False) for rank in range(size)]


def told(function):
    """What a call gives, or what it raises."""
    try:
        return function()
    except ValueError as error:
        return f"ValueError: {error}".split(",")[0]


def rings(impl, draw):
    size, dtype = draw("size", (2, 1, 3, 4)), draw("dtype", FLOATS)
    xs = tensors(draw, "x", size, draw("shape", ((4,), (), (1,), (5,), (2, 3), (0,))), dtype)
    add = draw("add", (torch.add, torch.maximum))
    draw.see("all_reduce", run_threads(size, lambda group: impl.ring_all_reduce(xs[group.rank], group, add)))
    draw.see("broadcast", run_threads(size, lambda group: impl.broadcast(xs[group.rank], group)))
    draw.see("reduce_scatter", run_threads(size, lambda group: impl.reduce_scatter(xs[group.rank].flatten(), group)))
    draw.see("all_gather", run_threads(size, lambda group: impl.all_gather(xs[group.rank].flatten()[:group.rank],
                                                                           group)))
    draw.see("sent", run_threads(size, lambda group: [impl.ring_all_reduce(xs[0], group), group.bytes_sent][1]))
    draw.see("x", xs)
    draw.see("refused", run_threads(size, lambda group: told(
        lambda: impl.ring_all_reduce(torch.ones(2 + (group.rank == 1)), group))))


def counts(impl, draw):
    n, size = draw("n", (100, 0, 1, 7.5)), draw("size", (2, 1, 3, 8, 0))
    layers, stages = draw("layers", (3, 1)), draw("stages", (4, 1, 2, 0))
    stage, many = draw("stage", (0, 1, 3, -1)), draw("micro-batches", (5, 1, 2, 0))
    draw.see("ring", told(lambda: impl.all_reduce_bytes(n, size)))
    draw.see("tensor", told(lambda: impl.tensor_parallel_bytes(layers, n, size)))
    draw.see("pipeline", told(lambda: impl.pipeline_bytes(stage, stages, many, n)))
    draw.see("schedule", told(lambda: impl.one_f_one_b(stage, stages, many)))
    draw.see("bubble", told(lambda: impl.bubble(stages, many)))
    for scheme in ("data", "zero1", "zero2", "zero3", "tensor", "other"):
        draw.see(f"bytes of {scheme}", told(lambda scheme=scheme: impl.step_bytes(scheme, n, size)))
        draw.see(f"memory of {scheme}", told(lambda scheme=scheme: tuple(impl.memory_per_rank(scheme, n, size))))


def batch(impl, draw):
    size, rows = draw("size", (2, 1, 3)), draw("rows", (6, 0, 1, 4, 5))
    x = draw.tensor("x", (rows, 2), torch.float32, KINDS, grad=False)
    draw.see("rows", run_threads(size, lambda group: told(lambda: impl.shard_batch(x, group))))

    def seeded(group):
        impl.seed_ranks(5, group)
        return torch.rand(2)
    draw.see("seeds", run_threads(size, seeded))


def buckets(impl, draw):
    sizes = draw("sizes", st.lists(st.integers(0, 5), max_size=7))
    dtypes = [draw("of dtype", (torch.float32, torch.float32, torch.bfloat16)) for _ in sizes]
    needed = [draw("needs a gradient", (True, True, False)) for _ in sizes]
    parameters = [nn.Parameter(torch.zeros(n, dtype=dtype), requires_grad=need)
                  for n, dtype, need in zip(sizes, dtypes, needed)]
    places = {id(p): n for n, p in enumerate(parameters)}
    draw.see("buckets", told(lambda: [[places[id(p)] for p in bucket] for bucket in impl.make_buckets(
        parameters, draw("bucket_bytes", (8, 1, 12, 100, 0)))]))


def a_net(draw, size, d=3):
    """The same two layers for each rank."""
    weights = draw.tensor("weights", (2, d, d), torch.float64, ("normal",), grad=False)
    bias = draw.tensor("bias", (d,), torch.float64, ("normal",), grad=False)
    nets = [nn.Sequential(nn.Linear(d, d, bias=False), nn.Tanh(), nn.Linear(d, d)).double() for _ in range(size)]
    for net in nets:
        net.load_state_dict({"0.weight": weights[0], "2.weight": weights[1], "2.bias": bias})
    return nets


def gradients(module):
    return [p.grad for p in module.parameters()]


def data_parallel(impl, draw):
    size = draw("size", (2, 1, 3))
    nets, xs = a_net(draw, size), tensors(draw, "x", size, (2, 3), torch.float64)
    bucket_bytes, accumulate = draw("bucket_bytes", (1, 30, 100, 1000)), draw("accumulate", (0, 1, 2))

    def run(group):
        net, seen = impl.DataParallel(nets[group.rank], group, bucket_bytes), []
        for _ in range(2):
            with net.no_sync():
                for _ in range(accumulate):
                    net(xs[group.rank]).sum().backward()
            net(xs[group.rank]).square().sum().backward()
            seen.append([[g.clone() for g in gradients(net)], group.messages_sent])
        return seen
    draw.see("gradients", run_threads(size, run))


def sharded_adamw(impl, draw):
    size = draw("size", (2, 1, 3))
    nets, xs = a_net(draw, size), tensors(draw, "x", size, (2, 3), torch.float64)
    max_norm, groups = draw("max_norm", (None, 0.1, 100.0)), draw("two groups", (False, True))

    def run(group):
        p, norms = list(nets[group.rank].parameters()), []
        of = [{"params": p[:2], "weight_decay": 0.3}, {"params": p[2:]}] if groups else p
        optimizer = impl.ShardedAdamW(of, group, lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            nets[group.rank](xs[group.rank]).sum().backward()
            norms.append(optimizer.step(max_norm))
        return [norms, [x.detach() for x in p], [g["params"][0].detach() for g in optimizer.inner.param_groups]]
    draw.see("weights", run_threads(size, run))


def sharded(impl, draw):
    size = draw("size", (2, 1, 3))
    nets, xs = a_net(draw, size), tensors(draw, "x", size, (2, 3), torch.float64)

    def run(group):
        unit, x = impl.Sharded(nets[group.rank], group), xs[group.rank].requires_grad_()
        y = unit(x)
        y.square().sum().backward()
        return [y, x.grad, unit.piece.grad, group.bytes_sent, [name for name, _ in unit.named_parameters()]]
    draw.see("passes", run_threads(size, run))


def split_layers(impl, draw):
    size, bias = draw("size", (2, 1, 3)), draw("bias", (False, True))
    d_in, d_out = draw("inputs", (6, 4, 2)), draw("outputs", (6, 4, 2))
    x = draw.tensor("x", (2, d_in), torch.float32, ("normal",), grad=False)
    layers = [impl.Linear(d_in, d_out, bias=bias) for _ in range(size)]
    weight = draw.tensor("weight", (d_out, d_in), torch.float32, ("normal",), grad=False)
    for layer in layers:
        layer.weight.data.copy_(weight)

    def column(group):
        layer = impl.ColumnParallelLinear(layers[group.rank], group)
        own = x.clone().requires_grad_()
        y = layer(own)
        y.square().sum().backward()
        return [y, own.grad, gradients(layer)]

    def row(group):
        layer = impl.RowParallelLinear(layers[group.rank], group)
        own = x.tensor_split(size, -1)[group.rank].clone().requires_grad_()
        y = layer(own)
        y.square().sum().backward()
        return [y, own.grad, gradients(layer)]
    draw.see("column", run_threads(size, lambda group: told(lambda: column(group))))
    draw.see("row", run_threads(size, lambda group: told(lambda: row(group))))


def vocabulary(impl, draw):
    sizes = draw("words", ((2, 3), (5,), (1, 2, 1)))
    dtype = draw("dtype", (torch.float32, torch.float64, torch.bfloat16))
    logits = draw.tensor("logits", (3, sum(sizes)), dtype, KINDS, grad=False)
    targets = draw.ints("targets", (3,), sum(sizes))
    if draw("ignored", (False, True)):
        targets[1] = -100

    def run(group):
        z = logits.split(sizes, -1)[group.rank].clone().requires_grad_()
        loss = impl.vocab_parallel_cross_entropy(z, targets, group)
        loss.backward()
        return [loss, z.grad]
    draw.see("loss", run_threads(len(sizes), run))


def pipeline(impl, draw):
    size, many = draw("stages", (2, 1, 3)), draw("micro-batches", (3, 1, 2, 5))
    nets = a_net(draw, size)
    xs = [draw.tensor("input", (1, 3), torch.float64, ("normal",), grad=False) for _ in range(many)]

    def run(group):
        schedule = impl.one_f_one_b(group.rank, size, many)
        loss = impl.run_pipeline(nets[group.rank], group, schedule, xs, xs, nn.functional.mse_loss)
        return [loss, gradients(nets[group.rank]), group.bytes_sent]
    draw.see("step", run_threads(size, run))


def scaler(impl, draw):
    how = {"scale": draw("scale", (8.0, 1.0, 0.0, math.inf)), "growth": draw("growth", (2.0, 1.5, 1.0)),
           "backoff": draw("backoff", (0.5, 0.1, 1.0, 0.0)), "interval": draw("interval", (2, 1, 3, 0))}
    finite = draw("finite", st.lists(st.booleans(), max_size=8))

    def run():
        made, scales = impl.LossScaler(**how), []
        for ok in finite:
            made.update(ok)
            scales.append(made.scale)
        p = nn.Parameter(torch.ones(2))
        p.grad = torch.tensor([1.0, draw("gradient", (2.0, math.inf, math.nan))])
        return [scales, made.unscale([p, nn.Parameter(torch.ones(1))]), p.grad]
    draw.see("scales", told(run))


def checkpointed(impl, draw):
    net, x = a_net(draw, 1)[0], draw.tensor("x", (2, 3), torch.float64, ("normal",), grad=False)
    net = nn.Sequential(net, nn.Dropout(0.5))
    x.requires_grad_(draw("x needs a gradient", (True, False)))
    torch.manual_seed(draw("seed", (0, 1)))
    y = impl.checkpointed(net)(x)
    y.square().sum().backward()
    draw.see("all", [y, x.grad, gradients(net), torch.rand(1)])
