"""Lesson 26 with other numbers of ranks, shapes and dtypes, and with its parts put together."""

import math

import torch
from torch import nn

from given.ranks import run_threads
from grader import dtypes, points, raises
from grader.course.doubles import Descent

SIZES = {"vocab_size": 6, "d_model": 8, "layers": 2, "heads": 4, "kv_heads": 4, "d_ff": 4, "max_seq_len": 6}


class Net(nn.Module):
    """Two layers with a weight in common, a frozen one, and one without a bias."""

    def __init__(self, impl, d=4):
        super().__init__()
        self.one, self.two, self.three = impl.Linear(d, d), impl.Linear(d, d), impl.Linear(d, 1, bias=True)
        self.two.weight = self.one.weight
        self.frozen = nn.Parameter(torch.ones(d), requires_grad=False)

    def forward(self, x, scale=1.0):
        return self.three(self.two(self.one(x).tanh() * self.frozen)) * scale


def _alike(draw, make, size):
    """The same model for each rank, in memory of its own."""
    models = [make().to(draw.device, draw.float) for _ in range(size)]
    draw.fill(models[0])
    for model in models[1:]:
        model.load_state_dict(models[0].state_dict())
    return models


def _models(impl, draw, size, **changes):
    return _alike(draw, lambda: impl.Transformer(impl.ModelConfig(**{**SIZES, **changes})), size)


def _gradients(module):
    return {name: None if p.grad is None else p.grad.flatten() for name, p in module.named_parameters()}


def _loss(y, target):
    """Another number when the two are turned round."""
    return (y - 2 * target).square().mean()


@points(2)
def test_rings_of_many(impl, draw):
    """5 and 6 ranks, of 4, 6 and 13 numbers, and matrices that are transposed."""
    xs = [draw(13, 2) for _ in range(6)]
    return {(size, n): [run_threads(size, lambda group: ring(xs[group.rank][:n].T.reshape(-1), group))
                        for ring in (impl.reduce_scatter, impl.ring_all_reduce)]
            for size in (5, 6) for n in (2, 3, 13)}


def test_rings_count_their_bytes(impl, draw):
    """What all ranks send together: 2 · (size − 1) times x, also where the pieces are uneven."""
    found = {}
    for size in (2, 3, 5):
        for n in draw.ints(12, 3).tolist():
            x = draw(n)
            sent = run_threads(size, lambda group: [impl.ring_all_reduce(x, group), group.bytes_sent][1])
            found[size, n] = sum(sent)
    return found


def test_gathered_pieces_are_new(impl, draw):
    """Whoever writes into what is gathered or broadcast changes nothing on another rank."""
    xs = [draw(3) for _ in range(3)]

    def run(group):
        """Each rank spoils its own result."""
        y, z = impl.all_gather(xs[group.rank], group), impl.broadcast(xs[0], group)
        if group.rank == 1:
            y.zero_(), z.zero_()
        group.agree(done=True)
        return [y, z]
    return run_threads(3, run), xs


def test_maxima_of_rings(impl, draw):
    """All-reduced maxima and products, of negative numbers and of infinite ones."""
    xs = [draw(4) - 3 for _ in range(3)]
    xs[1][2] = -math.inf
    return [run_threads(3, lambda group: impl.ring_all_reduce(xs[group.rank], group, add))
            for add in (torch.maximum, torch.mul)]


@points(2)
def test_data_parallel_of_shared_weights(impl, draw):
    """A weight that two layers share, a frozen parameter, and arguments by name."""
    nets, x = _alike(draw, lambda: Net(impl), 3), draw(6, 4)

    def run(group):
        """Gradients after a step."""
        net = impl.DataParallel(nets[group.rank], group, bucket_bytes=1)
        net(impl.shard_batch(x, group), scale=2.0).square().sum().backward()
        return _gradients(net.module)
    return run_threads(3, run)


@points(2)
def test_data_parallel_in_another_order(impl, draw):
    """Gradients that come in another order on each rank: buckets go in their own, so no rank waits for another one."""
    nets = _alike(draw, lambda: nn.ModuleList(impl.Linear(3, 3) for _ in range(3)), 2)
    x = draw(2, 3)

    def run(group):
        """The layers are called in the other order on rank 1."""
        net, y = impl.DataParallel(nets[group.rank], group, bucket_bytes=1), x
        for layer in list(net.module)[::1 if group.rank else -1]:
            y = layer(y).tanh()
        y.sum().backward()
        return _gradients(net.module)
    return run_threads(2, run)


def test_data_parallel_after_a_pass_without_gradients(impl, draw):
    """Forward passes without a backward one, between steps, change nothing."""
    nets, x = _alike(draw, lambda: Net(impl), 2), draw(4, 4)

    def run(group):
        """Two steps with looks in between."""
        net, found = impl.DataParallel(nets[group.rank], group, bucket_bytes=40), []
        for _ in range(2):
            with torch.no_grad():
                net(x)
            net(x)
            net(impl.shard_batch(x, group)).square().sum().backward()
            found.append({name: None if g is None else g.clone() for name, g in _gradients(net.module).items()})
        return found
    return run_threads(2, run)


@points(2)
def test_sharded_adamw_of_a_model(impl, draw):
    """A Transformer on 3 ranks with two groups, clipped: its weights after two steps, and the norms."""
    models, ids = _models(impl, draw, 3, layers=1), draw.ints(6, 3, 3)

    def run(group):
        """Two steps."""
        model, norms = models[group.rank], []
        groups = [{"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.3},
                  {"params": [p for p in model.parameters() if p.ndim < 2]}]
        optimizer = impl.ShardedAdamW(groups, group, lr=0.05, weight_decay=0.0, eps=0.01)
        for _ in range(2):
            optimizer.zero_grad()
            row = ids[group.rank:group.rank + 1]
            impl.cross_entropy(model(row), row.roll(1, -1)).backward()
            norms.append(optimizer.step(0.5))
        return norms
    norms = run_threads(3, run)
    return [norms, [[p.detach() for p in model.parameters()] for model in models]]


def test_sharded_adamw_of_few_numbers(impl, draw):
    """More ranks than numbers: some pieces are empty."""
    xs = [nn.Parameter(draw(2)) for _ in range(1)] * 1

    def run(group):
        """A step of two numbers on four ranks."""
        x = nn.Parameter(xs[0].detach().clone())
        optimizer = impl.ShardedAdamW([x], group, lr=0.1)
        (x * (group.rank + 1)).sum().backward()
        return [optimizer.step(1.0), x.detach()]
    return run_threads(4, run)


@points(2)
def test_fully_sharded_trains(impl, draw):
    """Two steps of a sharded Transformer with tied embeddings on 3 ranks; uneven pieces."""
    models = _models(impl, draw, 3, tie_embeddings=True)
    ids = draw.ints(6, 3, 3)

    def run(group):
        """Losses and pieces."""
        model, losses = impl.fully_sharded(models[group.rank], group), []
        optimizer = Descent(model.parameters(), lr=0.1)
        for _ in range(2):
            model.zero_grad()
            row = ids[group.rank:group.rank + 1]
            loss = impl.cross_entropy(model(row), row.roll(1, -1))
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return [losses, {name: p.detach() for name, p in model.named_parameters()}]
    return run_threads(3, run)


def test_sharded_called_twice(impl, draw):
    """A unit that is called twice before the backward pass, with frozen parameters and arguments by name."""
    nets, x = _alike(draw, lambda: Net(impl), 2), draw(2, 4)

    def run(group):
        """Two outputs, one backward pass."""
        unit = impl.Sharded(nets[group.rank], group)
        (unit(x, scale=3.0) + unit(x * 2)).square().sum().backward()
        return unit.piece.grad
    return run_threads(2, run)


def test_sharded_in_half_precision(impl, draw):
    """Pieces, gathered weights and gradients are of the module's dtype, and half the bytes are sent."""
    nets = [net.bfloat16() for net in _alike(draw, lambda: nn.Sequential(impl.Linear(4, 4), impl.Linear(4, 4)), 2)]

    def run(group):
        """Dtypes and bytes."""
        unit = impl.Sharded(nets[group.rank], group)
        before = group.bytes_sent
        unit(torch.ones(1, 4, dtype=torch.bfloat16, device=draw.device)).sum().backward()
        return [unit.piece.dtype, unit.piece.grad.dtype, group.bytes_sent - before]
    return run_threads(2, run)


@points(2)
def test_tensor_parallel_trains(impl, draw):
    """A whole model on 4 ranks: the loss, gradients of what is whole, and of what is split."""
    models, ids = _models(impl, draw, 4, layers=1), draw.ints(6, 1, 3)

    def run(group):
        """One pass, with the vocabulary split, too."""
        model = models[group.rank]
        for block in model.blocks:
            impl.tensor_parallel(block, group)
        loss = impl.cross_entropy(model(ids), ids.roll(1, -1))
        loss.backward()
        return [loss, {name: p.grad for name, p in model.named_parameters() if "norm" in name or "up" in name}]
    return run_threads(4, run)


def test_split_layers_of_batches(impl, draw):
    """Column and row one after the other, of any batch, and of none."""
    layers = _alike(draw, lambda: nn.ModuleList([impl.Linear(3, 4), impl.Linear(4, 2, bias=True)]), 2)

    def run(group):
        """Outputs of three shapes."""
        first = impl.ColumnParallelLinear(layers[group.rank][0], group)
        second = impl.RowParallelLinear(layers[group.rank][1], group)
        return [second(first(x)) for x in xs]
    xs = [draw(3), draw(2, 1, 3), draw(0, 3)]
    return run_threads(2, run)


@dtypes("float64", "float16")
def test_vocabulary_on_many_ranks(impl, draw, dtype):
    """One word on each of 5 ranks, and several axes before it."""
    logits, targets = (draw.ints(64, 2, 2, 5) / 16).to(dtype), draw.ints(5, 2, 2)
    targets[0, 0] = -100

    def run(group):
        """The loss and its gradient."""
        z = logits[..., group.rank:group.rank + 1].clone().requires_grad_()
        loss = impl.vocab_parallel_cross_entropy(z, targets, group)
        loss.backward()
        return [loss, z.grad]
    return run_threads(5, run)


@points(2)
def test_pipelines_of_many_stages(impl, draw):
    """1F1B of 4 stages with 1, 2 and 6 micro-batches, and stages that widen and narrow."""
    widths = [3, 2, 4, 3, 1]
    nets = [draw.fill(impl.Linear(a, b, bias=True).to(draw.device, draw.float)) for a, b in zip(widths, widths[1:])]
    found = {}
    for many in (1, 2, 6):
        inputs, targets = [draw(2, 3) for _ in range(many)], [draw(2, 1) for _ in range(many)]

        def run(group):
            """One step of a stage."""
            net = nets[group.rank]
            net.zero_grad()
            loss = impl.run_pipeline(net, group, impl.one_f_one_b(group.rank, 4, many), inputs, targets,  # noqa: B023
                                     _loss)
            return [loss, _gradients(net), group.bytes_sent]
        found[many] = run_threads(4, run)
    return found


def test_pipelines_keep_little(impl, draw):
    """A stage keeps at most stages − stage micro-batches at a time: graphs are freed as their backward pass is done."""
    nets = [draw.fill(impl.Linear(2, 2).to(draw.device, draw.float)) for _ in range(3)]
    xs = [draw(1, 2) for _ in range(6)]

    def run(group):
        """The most outputs that lived at once."""
        import weakref
        alive, most = [], []

        def look(module, args, out):
            alive.append(weakref.ref(out))
            most.append(sum(ref() is not None for ref in alive))
        nets[group.rank].register_forward_hook(look)
        impl.run_pipeline(nets[group.rank], group, impl.one_f_one_b(group.rank, 3, 6), xs, xs, _loss)
        return max(most) <= 3 - group.rank + 1
    return run_threads(3, run)


def test_schedules_of_any_size(impl, draw):
    """Schedules of up to 6 stages and 8 micro-batches."""
    return [impl.one_f_one_b(stage, stages, 1 + many) for stages in (1, 2, 6) for many in draw.ints(8, 3).tolist()
            for stage in range(stages)]


def test_loss_scaler_over_time(impl, draw):
    """200 steps, most of them finite; scales below 1."""
    finite, scaler = (draw.uniform(200) < 0.9).tolist(), impl.LossScaler(scale=0.5, interval=5)
    scales = []
    for ok in finite:
        scaler.update(ok)
        scales.append(scaler.scale)
    return scales


def test_autocast_steps(impl, draw):
    """Five steps in float16 with AdamW, one of which overflows by its inputs."""
    config = impl.ModelConfig(**{**SIZES, "layers": 1})
    model = draw.fill(impl.Transformer(config).to(draw.device))
    optimizer = impl.AdamW(model.parameters(), lr=0.01)
    scaler, ids, norms = impl.LossScaler(scale=2.0**4, interval=2), draw.ints(6, 2, 4), []
    for n in range(5):
        if n == 3:
            scaler.scale = 2.0**60
        loss, norm = impl.autocast_step(model, optimizer, scaler, ids, ids.roll(-1, 1))
        norms.append([loss == loss, norm is None, scaler.scale])
    return norms


@points(2)
def test_checkpointed_inside_of_everything(impl, draw):
    """Checkpointed blocks in a data-parallel model, and sharded ones that are checkpointed."""
    models, ids = _models(impl, draw, 2, norm_eps=0.1), draw.ints(6, 2, 6)
    again = _models(impl, draw, 2, norm_eps=0.1)

    def run(group):
        """Gradients of both."""
        found = []
        for model, wrap in ((models[group.rank], lambda m: impl.DataParallel(m, group, 200)),
                            (again[group.rank], lambda m: impl.fully_sharded(m, group))):
            row = ids[group.rank:group.rank + 1]
            if model is models[group.rank]:
                for n, block in enumerate(model.blocks):
                    model.blocks[n] = impl.checkpointed(block)
            wrapped = wrap(model)
            if model is again[group.rank]:
                for n, block in enumerate(model.blocks):
                    model.blocks[n] = impl.checkpointed(block)
            (impl.cross_entropy(wrapped(row), row.roll(1, -1)) / 8).backward()
            found.append([g for name, g in _gradients(wrapped).items()
                          if g is not None and ("feed_forward" in name or name == "piece")])
        return found
    return run_threads(2, run)


def test_checkpointed_twice(impl, draw):
    """A checkpointed block inside of a checkpointed block, two inputs, and one of them whole numbers."""
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(draw(5, 3))

        def forward(self, x, ids=None):
            return x * (1 if ids is None else self.table[ids]) * torch.rand((), dtype=torch.float64).to(x)
    torch.manual_seed(1)
    block, x, ids = Two(), draw(4, 3).requires_grad_(), draw.ints(5, 4)
    y = impl.checkpointed(impl.checkpointed(block))(x, ids=ids) + impl.checkpointed(block)(x, ids)
    (y + impl.checkpointed(block)(x)).sum().backward()
    return [y, x.grad, block.table.grad, torch.rand(1)]


def test_checkpointed_of_inputs_that_hang_together(impl, draw):
    """Of two inputs one is made from the other: each gets its own gradient, once."""
    class Product(nn.Module):
        def forward(self, a, b):
            return a * b
    x = draw(3, 2).requires_grad_()
    impl.checkpointed(Product())(x, 3 * x).sum().backward()
    return x.grad


def test_whoever_fails_is_named(impl, draw):
    """A rank whose shape differs, in the middle of a step: all ranks are told, and none waits."""
    nets, x = _alike(draw, lambda: Net(impl), 3), draw(3, 4)

    def run(group):
        """Rank 1 leaves rows out."""
        net = impl.DataParallel(nets[group.rank], group, bucket_bytes=1)
        net(x).sum().backward()
        y = draw.uniform(3 + (group.rank == 1))
        return raises(ValueError, lambda: impl.ring_all_reduce(y, group), names="x")
    return run_threads(3, run)
