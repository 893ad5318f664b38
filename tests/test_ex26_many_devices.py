"""What lesson 26 asks of rings, of everything that is split between ranks, of scaled losses and of recomputing."""

import math
import weakref
from functools import partial

import torch
from torch import nn

from given.ranks import run_threads
from grader import dtypes, points, raises
from grader.course.doubles import Descent

SOFTMAXES = {f"torch.{of}{name}" for of in ("", "Tensor.", "nn.functional.") for name in ("softmax", "log_softmax")}
FORBIDDEN = {
    "DataParallel": {"torch.nn.parallel.DistributedDataParallel"},
    "LossScaler": {"torch.amp.GradScaler"}, "autocast_step": {"torch.amp.GradScaler"},
    "Recompute": {"torch.utils.checkpoint.checkpoint"}, "Checkpointed": {"torch.utils.checkpoint.checkpoint"},
    "vocab_parallel_cross_entropy": SOFTMAXES | {
        "torch.logsumexp", "torch.Tensor.logsumexp", "torch.nn.functional.softmin", "torch.nn.functional.cross_entropy",
        "torch.nn.functional.nll_loss", "torch.nn.Softmax", "torch.nn.LogSoftmax", "torch.nn.CrossEntropyLoss"},
}

SIZES = {"vocab_size": 8, "d_model": 8, "layers": 2, "heads": 4, "kv_heads": 2, "d_ff": 6, "max_seq_len": 8}


class Net(nn.Module):
    """Two layers, from the chapter's Linear: d inputs, hidden numbers, d outputs."""

    def __init__(self, impl, d=3, hidden=4, dropout=0.0):
        super().__init__()
        self.first, self.second = impl.Linear(d, hidden, bias=True), impl.Linear(hidden, d, bias=True)
        self.dropout = dropout

    def forward(self, x):
        hidden = self.first(x).tanh()
        if self.dropout:
            hidden = hidden * (torch.rand(hidden.shape, dtype=torch.float64) > self.dropout).to(hidden)
        return self.second(hidden)


def _net(impl, draw, **how):
    return draw.fill(Net(impl, **how).to(draw.device, draw.float))


def _nets(impl, draw, size, **how):
    """The same model for each rank, in memory of its own."""
    return _alike(draw, [Net(impl, **how).to(draw.device, draw.float) for _ in range(size)])


def _blocks(impl, draw, size, layers=1, **changes):
    """A small Transformer for each rank, all alike."""
    config = impl.ModelConfig(**{**SIZES, "layers": layers, **changes})
    return _alike(draw, [impl.Transformer(config).to(draw.device, draw.float) for _ in range(size)])


def _alike(draw, models):
    """The first filled with drawn numbers, the others with its."""
    draw.fill(models[0])
    for model in models[1:]:
        model.load_state_dict(models[0].state_dict())
    return models


def _gradients(module):
    """Each as one row: a row of its own may be next to 0, but for rounding."""
    return [None if p.grad is None else p.grad.flatten() for p in module.parameters()]


def _loss(y, target):
    """Another number when the two are turned round."""
    return (y - 2 * target).square().mean()


# -- rings

@points(2)
def test_reduce_scatter(impl, draw):
    """Rank r gets piece r of the sum of all ranks' x, and no other piece.

    Pieces are those of x.tensor_split(size). What rank r receives last has to be its own piece: so it begins by sending
    piece r − 1.
    """
    xs = [draw(8) for _ in range(4)]
    return {size: run_threads(size, lambda group: impl.reduce_scatter(xs[group.rank], group)) for size in (2, 4)}


def test_reduce_scatter_of_uneven_pieces(impl, draw):
    """Where the length cannot be divided by size, tensor_split makes the first pieces one longer; some may be empty.

    x.tensor_split(3) of 7 numbers: 3, 2 and 2 of them.
    """
    xs = [draw(7) for _ in range(3)]
    return {length: run_threads(3, lambda group: impl.reduce_scatter(xs[group.rank][:length], group))
            for length in (7, 5, 2, 1)}


def test_reduce_scatter_of_maxima(impl, draw):
    """add says what is done in place of a sum: with torch.maximum, each piece holds the largest numbers.

    Call add(a, b) wherever a piece that arrives meets one's own.
    """
    xs = [draw(6) for _ in range(3)]
    return {"reduce_scatter": run_threads(3, lambda group: impl.reduce_scatter(xs[group.rank], group, torch.maximum)),
            "all_reduce": run_threads(3, lambda group: impl.ring_all_reduce(xs[group.rank], group, torch.minimum))}


@points(2)
def test_all_gather(impl, draw):
    """Every rank gets the pieces of all, in the order of the ranks, whatever lengths they have.

    A piece says by itself how long it is: group.exchange gives it as it was sent.
    """
    even = [draw(2) for _ in range(4)]
    uneven = [draw(length) for length in (3, 1, 0, 2)]
    return {"even": run_threads(4, lambda group: impl.all_gather(even[group.rank], group)),
            "uneven": run_threads(4, lambda group: impl.all_gather(uneven[group.rank], group))}


@points(2)
def test_ring_all_reduce(impl, draw):
    """Every rank gets the sum of all ranks' x, in x's shape, also of fewer numbers than there are ranks.

    Make it one vector, reduce_scatter, all_gather, and give it its shape again.
    """
    shapes = {"vector": (6,), "matrix": (2, 3), "one": (1,), "no axis": (), "nothing": (0, 2)}
    xs = {name: [draw(*shape) for _ in range(3)] for name, shape in shapes.items()}
    return run_threads(3, lambda group: {name: impl.ring_all_reduce(x[group.rank], group) for name, x in xs.items()})


def test_rings_of_transposed(impl, draw):
    """ring_all_reduce takes an x that does not lie in one piece in memory, and one that records a graph.

    reshape copies where view cannot.
    """
    xs = [draw(3, 4).T.requires_grad_() for _ in range(2)]
    out = run_threads(2, lambda group: impl.ring_all_reduce(xs[group.rank], group))
    return {"sums": out, "with a graph": [x.requires_grad for x in out]}


@points(2)
def test_bytes_of_rings(impl, draw):
    """Each rank sends (size − 1) / size of x in a reduce_scatter, as much in an all_gather, twice it in an all-reduce.

    A rank never sends what another has sent to it already, and never the whole x.
    """
    x = draw(12 * (1 + int(draw.ints(6))))

    def sent(group):
        """What each has sent, one after the other."""
        counts = []
        for ring, y in ((impl.reduce_scatter, x), (impl.all_gather, x[:len(x) // 4]), (impl.ring_all_reduce, x)):
            before = group.bytes_sent
            ring(y.clone(), group)
            counts.append(group.bytes_sent - before)
        return counts
    return {size: run_threads(size, sent) for size in (1, 2, 3, 4)}


def test_rings_of_one_rank(impl, draw):
    """With one rank, every ring gives what it was given, in new memory, and sends nothing.

    There are size − 1 = 0 rounds.
    """
    x = draw(5)
    rings = impl.reduce_scatter, impl.all_gather, impl.ring_all_reduce, impl.broadcast
    found = run_threads(1, lambda group: [[ring(x, group) for ring in rings], group.messages_sent])[0]
    for y in found[0]:
        y.add_(1)
    return {"found": found, "x": x}


@dtypes("bfloat16", "float64")
def test_rings_of_other_dtypes(impl, draw, dtype):
    """Sums stay in the dtype of x, and whole numbers can be added as well.

    Only what each rank gives is added: make no float32 vector of zeros to begin with.
    """
    parts = [draw.ints(9, 5) for _ in range(3)]
    rings = impl.reduce_scatter, impl.ring_all_reduce, impl.broadcast, impl.all_gather
    return run_threads(3, lambda group: [ring(parts[group.rank].to(kind), group)
                                         for ring in rings for kind in (dtype, torch.int64)])


def test_rings_leave_their_arguments(impl, draw):
    """x is on every rank what it was, whatever is added on the way and whatever the caller does with the result.

    tensor_split gives views of x: clone what you add to.
    """
    xs = [draw(5) for _ in range(3)]

    def use(group):
        """All rings of a vector, and then other numbers in what came."""
        for ring in (impl.reduce_scatter, impl.all_gather, impl.ring_all_reduce, impl.broadcast):
            ring(xs[group.rank], group).fill_(7)
    run_threads(3, use)
    return xs


def test_broadcast(impl, draw):
    """Every rank gets rank 0's x: each receives it from the one before, and sends it to the next.

    Rank 0 only sends, the last one only receives.
    """
    xs = [draw(2, 3) for _ in range(4)]
    return {size: run_threads(size, lambda group: [impl.broadcast(xs[group.rank], group), group.bytes_sent])
            for size in (2, 3, 4)}


def test_rings_refuse(impl, draw):
    """Where shapes or dtypes differ between the ranks, all ranks raise a ValueError that names the argument.

    group.agree, called before anything is sent, raises it everywhere. If only the rank that sees it raised, the others
    would go on with a wrong sum, or wait.
    """
    longer, other = [draw(4), draw(4), draw(5)], [draw(4), draw(4), draw(4).double()]
    other[2] = other[2].half() if draw.float == torch.float64 else other[2]
    rings = {"reduce_scatter": impl.reduce_scatter, "ring_all_reduce": impl.ring_all_reduce,
             "broadcast": impl.broadcast}

    def refused(ring, xs, name="x"):
        """What each rank says."""
        return run_threads(3, lambda group: raises(ValueError, lambda: ring(xs[group.rank], group), names=name))
    turned = [draw(2, 3), draw(3, 2), draw(2, 3)]
    return {**{name: [refused(ring, xs) for xs in (longer, other)] for name, ring in rings.items()},
            "turned": [refused(ring, turned) for ring in (impl.ring_all_reduce, impl.broadcast)],
            "all_gather": refused(impl.all_gather, other, "piece")}


def test_all_reduce_bytes(impl, draw):
    """A rank sends 2 · (size − 1) / size · n bytes: less than twice the whole, however many ranks there are.

    (size − 1) pieces of n / size bytes, once for the sum and once to gather it. size is at least 1.
    """
    n = [int(x) for x in draw.ints(10_000, 4)]
    return {"bytes": [impl.all_reduce_bytes(x, size) for x, size in zip(n, (1, 2, 5, 64))],
            "no rank": [raises(ValueError, lambda: impl.all_reduce_bytes(n[0], low), names="size") for low in (0, -1)]}


# -- the batch is split

def test_shard_batch(impl, draw):
    """Rank r has the r-th share of the rows, as many as every other rank; what cannot be shared out is refused.

    A ValueError names x, on all ranks: with 3 rows on one rank and 2 on another, the mean of means is another mean.
    """
    x = draw(6, 2)

    def refused(group):
        """What is said of 5 rows and of 7."""
        return [raises(ValueError, lambda: impl.shard_batch(y, group), names="x") for y in (x[:5], x.repeat(2, 1)[:7])]
    return {**{size: run_threads(size, lambda group: impl.shard_batch(x, group)) for size in (1, 2, 3)},
            "uneven": run_threads(3, refused)}


def test_seed_ranks(impl, draw):
    """Each rank draws its own random numbers: torch's are seeded with seed + rank.

    With one seed for all, dropout would fall on the same places in every share of the batch.
    """
    def drawn(group):
        """Two numbers of each rank."""
        impl.seed_ranks(draw.seed, group)
        return torch.rand(2, dtype=torch.float64)
    return run_threads(3, drawn)


def _named(buckets, parameters):
    """The buckets, by the places of what is in them."""
    places = {id(p): n for n, p in enumerate(parameters)}
    return [[places[id(p)] for p in bucket] for bucket in buckets]


def test_make_buckets(impl, draw):
    """Buckets begin with the last parameter, and are full as soon as they hold bucket_bytes or more.

    A backward pass comes to the last layer first. The parameter that makes a bucket full is still in it.
    """
    size = torch.finfo(draw.float).bits // 8
    parameters = [nn.Parameter(draw(int(n) + 1)) for n in draw.ints(6, 9)]
    exact = [nn.Parameter(draw(2)) for _ in range(6)]
    return {"drawn": [_named(impl.make_buckets(iter(parameters), n * size), parameters) for n in (1, 5, 9, 1000)],
            "full to the byte": [_named(impl.make_buckets(exact, n * size), exact) for n in (3, 4, 5)]}


def test_make_buckets_leaves_out(impl, draw):
    """What needs no gradient is in no bucket; another dtype begins a new one; bucket_bytes is at least 1.

    One vector has one dtype. Without any parameter there is no bucket.
    """
    parameters = [nn.Parameter(draw(2)) for _ in range(6)]
    parameters[1].requires_grad_(False)
    parameters[3] = nn.Parameter(draw(2).bfloat16())
    empty = [nn.Parameter(draw(0)) for _ in range(2)]
    return {"buckets": _named(impl.make_buckets(parameters, 1000), parameters),
            "of no numbers": _named(impl.make_buckets(empty, 1), empty),
            "none": [impl.make_buckets([], 8), impl.make_buckets([parameters[1]], 8)],
            "refused": [raises(ValueError, lambda: impl.make_buckets(parameters, n), names="bucket_bytes")
                        for n in (0, -5)]}


@points(3)
def test_data_parallel(impl, draw):
    """After a backward pass, every rank has the mean of all ranks' gradients: that of the whole batch.

    The ring gives the sum: divide it by size. Each bucket is one vector; cut it again, and write each part into .grad.
    """
    x, y = draw(6, 3), draw(6, 3)

    def step(group):
        """The gradients of this rank's rows, averaged."""
        net = impl.DataParallel(nets[group.rank], group, bucket_bytes=size)
        _loss(net(impl.shard_batch(x, group)), impl.shard_batch(y, group)).backward()
        return _gradients(net)
    found = {}
    for size in (1, 40):
        nets = _nets(impl, draw, 3)
        found[f"buckets of {size} bytes"] = run_threads(3, step)
    return found


def test_data_parallel_bytes(impl, draw):
    """A step costs one all-reduce for each bucket: 2 · (size − 1) messages, and every gradient is in one of them.

    More messages: each parameter was sent alone. More bytes: a bucket was sent again.
    """
    def counts(group):
        """(messages, bytes) of each of two steps."""
        net, said = impl.DataParallel(nets[group.rank], group, bucket_bytes=size), []
        for _ in range(2):
            before = group.messages_sent, group.bytes_sent
            net(xs[group.rank]).sum().backward()
            said.append([group.messages_sent - before[0], sum(group.everyones(group.bytes_sent - before[1]))])
        return said
    xs, found, hidden = [draw(2, 3) for _ in range(2)], {}, 6 + int(draw.ints(6))
    for size in (1, 30 * torch.finfo(draw.float).bits // 8, 4000):
        nets = _nets(impl, draw, 2, hidden=hidden)
        found[size > 1, size == 4000] = run_threads(2, counts)
    return list(found.values())


@points(2)
def test_data_parallel_does_not_wait(impl, draw):
    """A bucket is sent as soon as it is full, while the backward pass is still on its way, and not before it is full.

    A hook of register_post_accumulate_grad_hook is called when a parameter has its gradient. Here a look at what has
    been sent when the gradient comes to the first layer's output, and when all is over.
    """
    def when(group, size):
        """Messages sent at that time, and in the end."""
        net = impl.DataParallel(nets[group.rank], group, bucket_bytes=size)
        before, seen = group.messages_sent, []
        net.module.first.register_forward_hook(lambda module, args, out: out.register_hook(
            lambda grad: seen.append(group.messages_sent - before)) and None)
        net(xs[group.rank]).sum().backward()
        return [*seen, group.messages_sent - before]
    xs, found, width = [draw(2, 3) for _ in range(2)], [], torch.finfo(draw.float).bits // 8
    for size in (1, 15 * width, 16 * width):       # the second layer has 3 + 12 numbers
        nets = _nets(impl, draw, 2)
        found.append(run_threads(2, partial(when, size=size)))
    return found


def test_data_parallel_begins_alike(impl, draw):
    """At the start all ranks have rank 0's parameters and buffers.

    Copy what broadcast gives into each of them. Ranks that begin apart stay apart: the same gradient moves them alike.
    """
    nets = [Net(impl).to(draw.device, draw.float) for _ in range(3)]
    for net in nets:
        draw.fill(net)
        net.register_buffer("counted", draw(2))
        for x in net.state_dict().values():
            x.add_(draw(*x.shape))
    run_threads(3, lambda group: impl.DataParallel(nets[group.rank], group) and None)
    return [net.state_dict() for net in nets]


def test_data_parallel_steps(impl, draw):
    """Several steps on 2 ranks end with the weights of one process that sees the whole batch.

    Count anew for every backward pass which gradients have arrived.
    """
    x, y = draw(4, 3), draw(4, 3)

    def steps(group):
        """Three steps of gradient descent."""
        net = impl.DataParallel(nets[group.rank], group, bucket_bytes=50)
        optimizer = Descent(net.parameters(), lr=0.1)
        for _ in range(3):
            for p in net.parameters():
                p.grad = None
            _loss(net(impl.shard_batch(x, group)), impl.shard_batch(y, group)).backward()
            optimizer.step()
        return list(net.module.state_dict().values())
    nets = _nets(impl, draw, 2)
    return run_threads(2, steps)


@points(2)
def test_data_parallel_no_sync(impl, draw):
    """Inside of no_sync nothing is sent and gradients add up; the next backward pass outside averages the sums.

    Also where no_sync is left by an exception, the next pass is averaged.
    """
    def accumulate(group):
        """Gradients of two batches, and what was sent after the first."""
        net = impl.DataParallel(nets[group.rank], group, bucket_bytes=60)
        before = group.bytes_sent
        with net.no_sync():
            net(xs[group.rank][0]).sum().backward()
        quiet = group.bytes_sent - before
        net(xs[group.rank][1]).square().sum().backward()
        both = [g.clone() for g in _gradients(net)]
        failed = raises(RuntimeError, lambda: leave(net))
        net(xs[group.rank][0]).sum().backward()
        return [quiet, both, failed, _gradients(net)]

    def leave(net):
        with net.no_sync():
            raise RuntimeError("out of here")
    xs = [[draw(2, 3), draw(2, 3)] for _ in range(2)]
    nets = _nets(impl, draw, 2)
    return run_threads(2, accumulate)


@points(2)
def test_data_parallel_order_of_buckets(impl, draw):
    """Gradients may come in another order on each rank: buckets are reduced in their own order, the same on all.

    A bucket that is full waits for those before it. Else one rank's first layer would be added to another's last.
    """
    layers = [nn.ModuleList(impl.Linear(3, 3).to(draw.device, draw.float) for _ in range(3)) for _ in range(2)]
    draw.fill(layers[0])
    layers[1].load_state_dict(layers[0].state_dict())

    def run(group):
        """Rank 1 goes through the layers from the last to the first."""
        net, y = impl.DataParallel(layers[group.rank], group, bucket_bytes=1), xs[group.rank]
        for layer in list(net.module)[::-1 if group.rank else 1]:
            y = layer(y).tanh()
        y.sum().backward()
        return _gradients(net)
    xs = [draw(2, 3) for _ in range(2)]
    return run_threads(2, run)


def test_data_parallel_misses_a_gradient(impl, draw):
    """Where a parameter got no gradient, the next forward is a ValueError that names module.

    Its bucket was never full, so its other gradients were not averaged: nobody should train on with them.
    """
    def run(group):
        """A pass that leaves out the second layer, and then another."""
        net = impl.DataParallel(nets[group.rank], group, bucket_bytes=1)
        net.module.first(xs[group.rank]).sum().backward()
        again = raises(ValueError, lambda: net(xs[group.rank]), names="module")
        return again
    xs, nets = [draw(2, 3) for _ in range(2)], _nets(impl, draw, 2)
    return run_threads(2, run)


def test_data_parallel_refuses(impl, draw):
    """Modules of other names or shapes on another rank: a ValueError on all ranks, naming module.

    group.agree, before the first broadcast. bucket_bytes is at least 1.
    """
    wide = [Net(impl, hidden=4 + (n == 1)) for n in range(3)]
    named = [Net(impl) for n in range(3)]
    named[2].third = named[2].second
    del named[2].second
    nets = _nets(impl, draw, 3)

    def refused(group, nets, name, size=100):
        return raises(ValueError, lambda: impl.DataParallel(nets[group.rank], group, size), names=name)
    return {"shapes": run_threads(3, lambda group: refused(group, wide, "module")),
            "names": run_threads(3, lambda group: refused(group, named, "module")),
            "bucket_bytes": run_threads(3, lambda group: refused(group, nets, "bucket_bytes", 0))}


# -- the optimizer's state is split

def _adamw_steps(impl, draw, nets, xs, group, steps=3, max_norm=None, **options):
    """Steps of a ShardedAdamW on this rank's rows: (its norms, the optimizer)."""
    net, norms = nets[group.rank], []
    optimizer = impl.ShardedAdamW(net.parameters(), group, lr=0.1, **options)
    for _ in range(steps):
        optimizer.zero_grad()
        net(xs[group.rank]).square().sum().backward()
        norms.append(optimizer.step(max_norm))
    return norms, optimizer


@points(3)
def test_sharded_adamw(impl, draw):
    """After its steps all ranks have the weights that AdamW gives with the mean of the ranks' gradients.

    Reduce-scatter the gradients as one vector and divide by size; move the own piece; all-gather the pieces; write them
    into the parameters.
    """
    found = {}
    for size in (1, 3):
        nets, xs = _nets(impl, draw, size), [draw(2, 3) for _ in range(size)]
        norms = run_threads(size, lambda group: _adamw_steps(impl, draw, nets, xs, group, weight_decay=0.2)[0])
        found[size] = [norms, [list(net.state_dict().values()) for net in nets]]
    return found


def test_sharded_adamw_state(impl, draw):
    """Each rank has m, v and a copy of the weights for its own piece alone: a size-th of all of them.

    inner is lesson 14's AdamW with one parameter, the own piece, in each group.
    """
    nets, xs = _nets(impl, draw, 3), [draw(2, 3) for _ in range(3)]

    def held(group):
        """What inner knows of its piece."""
        norms, optimizer = _adamw_steps(impl, draw, nets, xs, group, steps=2)
        piece = optimizer.inner.param_groups[0]["params"]
        return [len(piece), piece[0].detach(), optimizer.inner.state[piece[0]]]
    return run_threads(3, held)


def test_sharded_adamw_groups(impl, draw):
    """Parameter groups keep their own options: a vector, and a piece of it on each rank, for every group.

    Such are the two groups of parameter_groups: matrices, which decay, and vectors, which do not.
    """
    from_groups = []

    def steps(group):
        """Two steps with two groups."""
        net = nets[group.rank]
        matrices = [p for p in net.parameters() if p.ndim == 2]
        vectors = [p for p in net.parameters() if p.ndim < 2]
        optimizer = impl.ShardedAdamW([{"params": matrices, "weight_decay": 0.5}, {"params": iter(vectors), "lr": 0.3}],
                                      group, lr=0.1, weight_decay=0.0)
        for _ in range(2):
            optimizer.zero_grad()
            net(xs[group.rank]).sum().backward()
            optimizer.step()
        return [(len(g["params"]), g["params"][0].numel(), g["lr"], g["weight_decay"])
                for g in optimizer.inner.param_groups]
    nets, xs = _nets(impl, draw, 2), [draw(2, 3) for _ in range(2)]
    from_groups = run_threads(2, steps)
    return [from_groups, [list(net.state_dict().values()) for net in nets]]


@points(2)
def test_sharded_adamw_clips(impl, draw):
    """max_norm holds for the whole gradient: the norm is that of all pieces on all ranks, before clipping.

    Add up the squares of the pieces with ring_all_reduce, then take the root. With a norm of its own, each rank would
    scale its piece by another factor.
    """
    found = []
    for max_norm, size in ((0.1, 3), (1000.0, 2)):
        nets, xs = _nets(impl, draw, size), [draw(2, 3) for _ in range(size)]
        norms = run_threads(size, lambda group: _adamw_steps(impl, draw, nets, xs, group, 2, max_norm, eps=0.1)[0])
        found.append([norms, [list(net.state_dict().values()) for net in nets]])
    nets = _nets(impl, draw, 1)
    found.append(run_threads(1, lambda group: [
        raises(ValueError, lambda: impl.ShardedAdamW(nets[0].parameters(), group).step(low), names="max_norm")
        for low in (0, -1, math.nan)]))
    return found


def test_sharded_adamw_bytes(impl, draw):
    """A step sends as much as an all-reduce of the gradients: a reduce-scatter of them, an all-gather of the weights.

    And one number for the norm. No rank needs the sum of the gradients that are not its own.
    """
    def sent(group):
        """Bytes of one step."""
        optimizer = impl.ShardedAdamW(nets[group.rank].parameters(), group)
        nets[group.rank](x).sum().backward()
        before = group.bytes_sent
        optimizer.step()
        return group.bytes_sent - before
    x, nets = draw(2, 3), _nets(impl, draw, 3, hidden=4 + int(draw.ints(20)))
    return sum(run_threads(3, sent)) // 64          # the norm's number may go round as it likes


def test_sharded_adamw_half(impl, draw):
    """Of weights in half precision, the piece, m and v are in float32, so that small steps add up.

    Gathered, and written into the parameters, are numbers of their own dtype: half the bytes.
    """
    nets = [net.bfloat16() for net in _nets(impl, draw, 2)]

    def steps(group):
        """8 steps, each less than bfloat16 can tell."""
        p = list(nets[group.rank].parameters())
        optimizer = impl.ShardedAdamW(p, group, lr=5e-4, weight_decay=0.0)
        before = group.bytes_sent
        for _ in range(8):
            for x in p:
                x.grad = torch.ones_like(x)
            optimizer.step()
        piece = optimizer.inner.param_groups[0]["params"][0]
        return [piece.detach(), optimizer.inner.state[piece]["m"].dtype, [x.detach() for x in p],
                sum(group.everyones(group.bytes_sent - before))]
    return run_threads(2, steps)


def test_sharded_adamw_refuses(impl, draw):
    """Parameters of other shapes or dtypes on another rank: a ValueError on all ranks, naming params.

    group.agree, before the vectors are cut: a piece of one would meet a piece of another.
    """
    shapes = [draw(2, 3), draw(3, 2)]

    def refused(group, x):
        return raises(ValueError, lambda: impl.ShardedAdamW([nn.Parameter(x)], group), names="params")
    return {"shapes": run_threads(2, lambda group: refused(group, shapes[group.rank])),
            "dtypes": run_threads(2, lambda group: refused(group, shapes[0].bfloat16() if group.rank else shapes[0]))}


def test_sharded_adamw_without_gradients(impl, draw):
    """A parameter without a gradient counts as one with zeros; zero_grad drops all gradients.

    Its decay, and what m remembers, still move it.
    """
    def steps(group):
        """A step with half of the gradients, and one with none."""
        net = nets[group.rank]
        optimizer = impl.ShardedAdamW(net.parameters(), group, lr=0.1)
        net.first(xs[group.rank]).square().sum().backward()
        first = optimizer.step()
        optimizer.zero_grad()
        return [first, _gradients(net), optimizer.step(), list(net.state_dict().values())]
    nets, xs = _nets(impl, draw, 2), [draw(2, 3) for _ in range(2)]
    return run_threads(2, steps)


# -- the weights are split

def test_gather_pieces(impl, draw):
    """Forward, the pieces become the whole; backward, each rank gets its own piece of the mean gradient.

    The backward of an all-gather is a reduce-scatter: every rank has a gradient of the whole. held is emptied then.
    """
    def run(group):
        """The whole, the own gradient, and what is held."""
        held = {"whole": 1}
        piece = pieces[group.rank].requires_grad_()
        whole = impl.GatherPieces.apply(piece, group, held)
        (whole * weights[group.rank]).sum().backward()
        return [whole, piece.grad, held]
    pieces, weights = [draw(n) for n in (3, 2, 2)], [draw(7) for _ in range(3)]
    return run_threads(3, run)


@points(3)
def test_sharded(impl, draw):
    """A Sharded module gives what the module gives, and its piece gets that piece of the mean gradient.

    Gather the pieces by GatherPieces, cut the vector into the parameters, put them where they were, and call the
    module. Gradients find their way through the views by themselves.
    """
    def run(group):
        """Output and gradients of one pass."""
        unit, x = impl.Sharded(nets[group.rank], group), xs[group.rank].requires_grad_()
        y = unit(x)
        y.square().mean().backward()
        return [y, x.grad, unit.piece.grad, unit.piece.detach()]
    found = {}
    for size in (1, 3):
        nets, xs = _nets(impl, draw, size), [draw(2, 3) for _ in range(size)]
        found[size] = run_threads(size, run)
    return found


@points(2)
def test_sharded_holds_a_piece(impl, draw):
    """Before, after and between its passes, a rank holds only its piece: no parameter of the module is left in it.

    Take each parameter out of its module's _parameters, put None in its place, and again after forward, also after an
    error. Here the memory that the backward pass keeps is looked at: nothing of the weights may be in it.
    """
    def run(group):
        """Names of the parameters, what stands in their places, and how many numbers autograd keeps."""
        net, kept = nets[group.rank], {}

        def keep(x):
            kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes() // x.element_size()
            return x
        unit = impl.Sharded(net, group)
        before = [net.first.weight is None, net.second.bias is None]
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            y = unit(xs[group.rank])
        between = [net.first.weight is None, net.second.bias is None]
        y.sum().backward()
        failed = raises(ValueError, lambda: unit(xs[group.rank][:, :2]), names="x")
        after = [net.first.weight is None, net.second.bias is None]
        return [[name for name, _ in unit.named_parameters()], before, between, failed, after,
                max(kept.values(), default=0) < 27]
    nets, xs = _nets(impl, draw, 2), [draw(2, 3) for _ in range(2)]
    return run_threads(2, run)


def test_sharded_bytes(impl, draw):
    """A pass costs three rings of the weights: gathered forward, gathered again backward, gradients reduce-scattered.

    Without a backward pass it is one. Where the backward pass gathers more than once, keep what came until the gradient
    has been sent.
    """
    def sent(group):
        """Bytes of a pass without gradients, of a forward and of a backward pass."""
        unit, counts = impl.Sharded(nets[group.rank], group), [group.bytes_sent]
        with torch.no_grad():
            unit(x)
        counts.append(group.bytes_sent)
        y = unit(x.clone().requires_grad_())
        counts.append(group.bytes_sent)
        y.square().sum().backward()
        counts.append(group.bytes_sent)
        return [b - a for a, b in zip(counts, counts[1:])]
    x, nets = draw(2, 3), _nets(impl, draw, 3, hidden=3 * (1 + int(draw.ints(5))))
    return run_threads(3, sent)


def test_sharded_begins_with_rank_0(impl, draw):
    """The pieces are of rank 0's parameters; modules that differ, have none, or several dtypes, are refused.

    A ValueError on all ranks, naming module.
    """
    nets = [_net(impl, draw, d=2 + (n > 2)) for n in range(4)]
    for net in nets:
        for p in net.parameters():
            p.data.add_(draw(*p.shape))
    two = _nets(impl, draw, 2)
    for net in two:
        net.second.to(torch.bfloat16)

    def refused(group, nets):
        return raises(ValueError, lambda: impl.Sharded(nets[group.rank], group), names="module")
    return {"differ": run_threads(2, lambda group: refused(group, nets[2:])),
            "pieces": run_threads(2, lambda group: impl.Sharded(nets[group.rank], group).piece.detach()),
            "no parameter": run_threads(2, lambda group: refused(group, [nn.Tanh(), nn.Tanh()])),
            "two dtypes": run_threads(2, lambda group: refused(group, two))}


@points(3)
def test_fully_sharded(impl, draw):
    """A Transformer in units: each block a Sharded of its own, the rest another; together it computes what it did.

    The outer one takes the parameters that no inner one has: skip modules that are Sharded.
    """
    ids = draw.ints(8, 2, 3)
    targets = draw.ints(8, 2, 3)

    def run(group):
        """Loss, gradients and names."""
        model = impl.fully_sharded(models[group.rank], group)
        loss = impl.cross_entropy(model(ids[group.rank:group.rank + 1]), targets[group.rank:group.rank + 1])
        loss.backward()
        return [loss, {name: p.grad for name, p in model.named_parameters()}]
    models = _blocks(impl, draw, 2, layers=2, norm_eps=0.1)
    return run_threads(2, run)


def test_sharded_shared_parameters(impl, draw):
    """A parameter that two modules share is in the piece once, and gets both gradients.

    So it is with tied embeddings. Keep for each parameter all the places where it stands.
    """
    def run(group):
        """A model whose two layers have one weight."""
        net = nets[group.rank]
        net.second.weight = net.first.weight
        unit = impl.Sharded(net, group)
        unit(xs[group.rank]).square().sum().backward()
        return [unit.piece.numel(), unit.piece.grad]
    nets, xs = _nets(impl, draw, 2, hidden=3), [draw(2, 3) for _ in range(2)]
    return run_threads(2, run)


# -- single layers are split

@points(2)
def test_f_and_g(impl, draw):
    """f copies forward and adds up backward; g adds up forward and copies backward. Each is the other's mirror.

    x of f is the same everywhere and used by every rank, so its gradient is a sum. y of g holds each rank's x once, so
    each gradient is y's, undivided and unmultiplied.
    """
    def run(group):
        """Output and gradient of both."""
        found = []
        for function in (impl.CopyToRanks, impl.ReduceFromRanks):
            x = xs[group.rank].clone().requires_grad_()
            y = function.apply(x, group)
            (y * weights[group.rank]).sum().backward()
            found += [y, x.grad]
        return found
    xs, weights = [draw(2, 3) for _ in range(3)], [draw(2, 3) for _ in range(3)]
    return run_threads(3, run)


def _layers(impl, draw, size, d_in, d_out, bias=True):
    layers = [impl.Linear(d_in, d_out, bias=bias).to(draw.device, draw.float) for _ in range(size)]
    draw.fill(layers[0])
    for layer in layers[1:]:
        layer.load_state_dict(layers[0].state_dict())
    return layers


@points(2)
def test_column_parallel(impl, draw):
    """Each rank computes its own outputs of the layer, with its own rows of the weight and of the bias.

    x is the same on all ranks, so its gradient is added up: f. The weight's own gradient needs no sending.
    """
    def run(group):
        """Outputs and gradients, with and without f."""
        found = []
        for copy in (True, False):
            layer = impl.ColumnParallelLinear(layers[group.rank], group, copy)
            x = xs.clone().requires_grad_()
            y = layer(x)
            y.square().sum().backward()
            found.append([y, x.grad, layer.weight.grad, layer.bias.grad])
        return found
    xs, layers = draw(2, 3), _layers(impl, draw, 2, 3, 6)
    return run_threads(2, run)


@points(2)
def test_row_parallel(impl, draw):
    """Each rank multiplies its own features by its own columns; the sum over the ranks, and then the bias, is y.

    With the bias on every rank before the sum, it would be added size times.
    """
    def run(group):
        """Output and gradients."""
        layer = impl.RowParallelLinear(layers[group.rank], group)
        x = xs[:, 2 * group.rank:2 * group.rank + 2].clone().requires_grad_()
        y = layer(x)
        y.square().sum().backward()
        return [y, x.grad, layer.weight.grad, layer.bias.grad]
    xs, layers = draw(2, 6), _layers(impl, draw, 3, 6, 4)
    return run_threads(3, run)


def test_split_layers_are_copies(impl, draw):
    """A split layer has a copy of its piece, contiguous, and no bias where the layer has none.

    A view of the whole weight would keep all of it in memory, on every rank.
    """
    def run(group):
        """Memory of each weight, and whether it lies in one piece."""
        made = [impl.ColumnParallelLinear(layers[group.rank], group), impl.RowParallelLinear(layers[group.rank], group)]
        return [[m.weight.untyped_storage().nbytes() // m.weight.element_size(), m.weight.is_contiguous(), m.bias,
                 m.weight.requires_grad] for m in made] + [m.weight.detach() for m in made]
    layers = _layers(impl, draw, 2, 4, 6, bias=False)
    return run_threads(2, run)


def test_split_layers_refuse(impl, draw):
    """Features, or heads of keys and values, that cannot be divided by size: a ValueError naming linear or block.

    Look before anything is changed.
    """
    layers, models = _layers(impl, draw, 3, 4, 5), _blocks(impl, draw, 3)

    def run(group):
        """What each says."""
        block = models[group.rank].blocks[0]
        return [raises(ValueError, lambda: impl.ColumnParallelLinear(layers[group.rank], group), names="linear"),
                raises(ValueError, lambda: impl.RowParallelLinear(layers[group.rank], group), names="linear"),
                raises(ValueError, lambda: impl.tensor_parallel(block, group), names="block"),
                block.attention.heads, block.attention.q_proj.weight.shape]
    return run_threads(3, run)


@points(3)
def test_tensor_parallel(impl, draw):
    """A block whose layers are split gives on every rank what the whole block gives, and the same gradient of x.

    q, k, v, gate and up by columns; o and down by rows; half of the heads on each of 2 ranks. Norms are whole, and
    their gradients are, too, if f stands between the norm and the layers.
    """
    def run(group):
        """Output and gradients."""
        block = impl.tensor_parallel(models[group.rank].blocks[0], group)
        x = xs.clone().requires_grad_()
        y = block(x)
        y.square().sum().backward()
        return [y, x.grad.flatten(), {name: p.grad.flatten() for name, p in block.named_parameters()}]
    xs, models = draw(1, 3, 8), _blocks(impl, draw, 2)
    return run_threads(2, run)


def test_tensor_parallel_normalizes_heads(impl, draw):
    """q_norm and k_norm of a split block get the gradients that they have in the whole one, alike on all ranks.

    They see this rank's heads alone: each rank has a part of their gradient, and the sum is wanted.
    """
    def run(group):
        """Output, and the gradients of what is whole."""
        block = impl.tensor_parallel(models[group.rank].blocks[0], group)
        y = block(xs)
        y.square().sum().backward()
        return [y, {name: p.grad for name, p in block.named_parameters() if "norm" in name}]
    xs, models = draw(1, 3, 8), _blocks(impl, draw, 2, qk_norm=True)
    return run_threads(2, run)


def test_tensor_parallel_bytes_of_a_block(impl, draw):
    """A block costs two all-reduces of its activations forward and two backward, each of tokens · d_model numbers.

    f once before each sublayer, not in each of q, k and v: with copy=False their layers leave it out.
    """
    def run(group):
        """Bytes forward and backward."""
        block = impl.tensor_parallel(models[group.rank].blocks[0], group)
        before = group.bytes_sent
        y = block(xs.clone().requires_grad_())
        forward = group.bytes_sent - before
        y.sum().backward()
        return [forward, group.bytes_sent - before - forward]
    xs, models = draw(1, 2 + int(draw.ints(5)), 8), _blocks(impl, draw, 2)
    return run_threads(2, run)


def _vocab_parallel(impl, draw, logits, targets, sizes, **how):
    """The loss on every rank, and the gradient of its logits."""
    def run(group):
        """This rank's words."""
        z = logits.split(sizes, -1)[group.rank].clone().requires_grad_()
        loss = impl.vocab_parallel_cross_entropy(z, targets, group, **how)
        loss.backward()
        return [loss, z.grad]
    return run_threads(len(sizes), run)


@points(3)
def test_vocab_parallel_cross_entropy(impl, draw):
    """The loss of all logits, on every rank, though each has only some of the words; gradients are softmax − one-hot.

    Subtract the maximum of all ranks; add up e^z over all ranks; the target's logit is on one rank only, so the others
    give 0 to its sum.
    """
    logits, targets = draw(2, 3, 6, scale=2.0), draw.ints(6, 2, 3)
    return {"even": _vocab_parallel(impl, draw, logits, targets, (3, 3)),
            "uneven": _vocab_parallel(impl, draw, logits, targets, (1, 3, 2)),
            "one rank": _vocab_parallel(impl, draw, logits[0, 0], targets[0, 0], (6,))}


def test_vocab_parallel_ignores(impl, draw):
    """A target that is ignored is in no sum and no mean, whatever its logits are; the gradient is 0 there.

    Choose the kept rows first; then less is sent, too.
    """
    logits, targets = draw(4, 5), draw.ints(5, 4)
    targets[1], targets[3] = -100, 2
    logits[1] = math.nan
    return [_vocab_parallel(impl, draw, logits, targets, (3, 2)),
            _vocab_parallel(impl, draw, logits[2:], targets[2:], (3, 2), ignore_index=int(targets[2]) if
                            int(targets[2]) != 2 else 7)]


def test_vocab_parallel_of_large_logits(impl, draw):
    """Logits of thousands give a finite loss: the maximum over all ranks is subtracted before e^….

    A rank's own maximum is not enough: the other ranks subtract another.
    """
    eighths = [draw.ints(high, 3, 6).to(draw.float) / 8 for high in (60_000, 32, 32)]
    return [_vocab_parallel(impl, draw, eighths[0] - 4000, draw.ints(6, 3), (2, 4)),
            _vocab_parallel(impl, draw, eighths[1] - 5000, draw.ints(6, 3), (3, 3)),
            _vocab_parallel(impl, draw, torch.cat([eighths[2][:, :3] - 200, eighths[2][:, 3:]], -1), draw.ints(6, 3),
                            (3, 3))]


@dtypes("bfloat16", "float64")
def test_vocab_parallel_in_other_dtypes(impl, draw, dtype):
    """The loss is computed in at least float32, and is of the dtype of the logits.

    widen the kept rows.
    """
    targets = draw.ints(6, 4)
    sure = (draw.ints(8, 4, 6) / 8 - 7).scatter(1, targets[:, None], 0.0)       # e⁻⁷ is lost in 1 + e⁻⁷ of a bfloat16
    return [_vocab_parallel(impl, draw, logits.to(dtype), targets.to(torch.int16), (2, 4))
            for logits in (draw.ints(32, 4, 6) / 8, sure)]


def test_vocab_parallel_refuses(impl, draw):
    """A kept target outside of the whole vocabulary, or none that is kept: a ValueError on all ranks, naming targets.

    Whether a rank has a target is no question of right or wrong: only all ranks' words together say that.
    """
    logits, inside = draw(3, 6), draw.ints(6, 3)
    bad = {"too high": 6, "below 0": -1}
    found = {}
    for name, value in bad.items():
        targets = inside.clone()
        targets[1] = value
        found[name] = run_threads(2, lambda group: raises(ValueError, lambda: impl.vocab_parallel_cross_entropy(
            logits.chunk(2, -1)[group.rank], targets, group), names="targets"))
    found["none"] = run_threads(2, lambda group: raises(ValueError, lambda: impl.vocab_parallel_cross_entropy(
        logits.chunk(2, -1)[group.rank], inside * 0 - 100, group), names="targets"))
    return found


# -- the depth is split

@points(2)
def test_one_f_one_b(impl, draw):
    """First stages − stage − 1 forward passes, then one forward and one backward by turns, then the backward ones left.

    The last stage begins its turns at once. Micro-batches go in order, forward and backward.
    """
    many = 5 + int(draw.ints(4))
    return {stage: impl.one_f_one_b(stage, 4, many) for stage in range(4)}


def test_one_f_one_b_of_few(impl, draw):
    """With fewer micro-batches than stages, the first stages send all forward before one comes back.

    min(stages − stage − 1, micro_batches) are ahead. stage, stages and micro_batches that make no sense are refused.
    """
    stages = 5 + int(draw.ints(3))
    refused = [raises(ValueError, lambda: impl.one_f_one_b(*given), names=name) for name, given in (
        ("stage", (stages, stages, 2)), ("stage", (-1, stages, 2)), ("stages", (0, 0, 2)),
        ("micro_batches", (0, stages, 0)))]
    return {"few": [impl.one_f_one_b(stage, stages, n) for n in (1, 2) for stage in range(stages)],
            "one stage": impl.one_f_one_b(0, 1, stages), "refused": refused}


def test_bubble(impl, draw):
    """A stage waits (stages − 1) / (micro_batches + stages − 1) of its time: none where there is one stage.

    In all a stage has micro_batches turns to work, and stages − 1 in which others fill or empty the pipeline.
    """
    stages, many = 2 + int(draw.ints(20)), 1 + int(draw.ints(50))
    return {"drawn": [impl.bubble(stages, many), impl.bubble(1, many), impl.bubble(stages, 1)],
            "refused": [raises(ValueError, lambda: impl.bubble(0, many), names="stages"),
                        raises(ValueError, lambda: impl.bubble(stages, 0), names="micro_batches")]}


def _pipeline(impl, draw, schedules, many, bytes_too=False):
    """Loss, gradients and what was sent, of as many stages as there are schedules."""
    size = len(schedules)
    nets = [_net(impl, draw, hidden=2 + n) for n in range(size)]
    inputs, targets = [draw(2, 3) for _ in range(many)], [draw(2, 3) for _ in range(many)]

    def run(group):
        """One step of this stage."""
        loss = impl.run_pipeline(nets[group.rank], group, schedules[group.rank], inputs, targets, _loss)
        return {"loss": loss, "gradients": _gradients(nets[group.rank]), "bytes": group.bytes_sent}
    return run_threads(size, run)


def _all_forward_first(many):
    return [("F", i) for i in range(many)] + [("B", i) for i in range(many)]


@points(3)
def test_run_pipeline(impl, draw):
    """Loss and gradients of a pipeline are those of the whole model on all micro-batches together.

    Each loss is divided by how many micro-batches there are, before its backward pass. The last stage gives the mean
    loss, the others None.
    """
    two = [[("F", 0), ("F", 1), ("B", 0), ("F", 2), ("B", 1), ("B", 2)],
           [("F", 0), ("B", 0), ("F", 1), ("B", 1), ("F", 2), ("B", 2)]]
    return {"one stage": _pipeline(impl, draw, [_all_forward_first(2)], 2), "two": _pipeline(impl, draw, two, 3)}


@points(2)
def test_run_pipeline_of_other_schedules(impl, draw):
    """What is run is the schedule, whatever it is: here all forward passes first, and one micro-batch alone.

    Ask the schedule's next entry whether it needs something from the stage that is sent to: exchange then, else send.
    """
    return {"all forward first": _pipeline(impl, draw, [_all_forward_first(3)] * 3, 3),
            "one": _pipeline(impl, draw, [_all_forward_first(1)] * 3, 1)}


@points(2)
def test_run_pipeline_of_one_f_one_b(impl, draw):
    """one_f_one_b on 3 stages runs through: no stage waits for one that waits for it.

    A stage in the middle sends an output and needs a gradient from the same neighbour, which sends that gradient and
    needs the output: one exchange.
    """
    return _pipeline(impl, draw, [impl.one_f_one_b(stage, 3, 4) for stage in range(3)], 4)


def test_run_pipeline_keeps_little(impl, draw):
    """What a micro-batch needed for its backward pass is freed after it: at most stages − stage are kept at a time.

    Take it out of what is kept, with pop.
    """
    nets, xs = _nets(impl, draw, 2), [draw(1, 3) for _ in range(5)]

    def run(group):
        """How many outputs live at each forward pass, the new one and the last one among them."""
        alive, counts = [], []

        def look(module, args, out):
            alive.append(weakref.ref(out))
            counts.append(sum(ref() is not None for ref in alive))
        nets[group.rank].second.register_forward_hook(lambda module, args, out: look(module, args, out) and None)
        schedule = [("F", 0), ("F", 1), ("B", 0), ("F", 2), ("B", 1), ("F", 3), ("B", 2), ("F", 4), ("B", 3), ("B", 4)]
        if group.rank == 1:
            schedule = [(kind, i) for i in range(5) for kind in "FB"]
        impl.run_pipeline(nets[group.rank], group, schedule, xs, xs, _loss)
        return max(counts) <= 3
    return run_threads(2, run)


def test_run_pipeline_refuses(impl, draw):
    """As many inputs as targets, and as many on every stage: else a ValueError on all ranks, naming inputs.

    A stage with one micro-batch fewer would leave its neighbours waiting.
    """
    nets, xs = _nets(impl, draw, 2), [draw(1, 3) for _ in range(3)]

    def run(group, counts, targets):
        """What this stage says."""
        n = counts[group.rank]
        return raises(ValueError, lambda: impl.run_pipeline(nets[group.rank], group, _all_forward_first(n), xs[:n],
                                                            xs[:targets[group.rank]], _loss), names="inputs")
    return {"other targets": run_threads(2, lambda group: run(group, (2, 2), (3, 3))),
            "on one stage": run_threads(2, lambda group: run(group, (2, 2), (2, 3))),
            "other stages": run_threads(2, lambda group: run(group, (2, 3), (2, 3)))}


# -- what a rank sends and holds

def test_step_bytes(impl, draw):
    """All-reduced gradients and ZeRO-1 send 2 · (size − 1) / size of the weights' bytes, ZeRO-3 3 · (size − 1) / size.

    ZeRO-3 gathers the weights twice. Another scheme is refused by name.
    """
    n = int(draw.ints(9000)) + 1
    return {"drawn": [[impl.step_bytes(scheme, n, size) for size in (1, 2, 7)] for scheme in
                      ("data", "zero1", "zero3")],
            "refused": [raises(ValueError, lambda: impl.step_bytes("zero9", n, 2), names="scheme"),
                        raises(ValueError, lambda: impl.step_bytes("data", n, 0), names="size")]}


def test_bytes_of_split_models(impl, draw):
    """Tensor parallelism sends 4 all-reduces a layer; a pipeline one activation a micro-batch to each neighbour.

    Stages at the ends have one neighbour, those between them two; a pipeline of one stage sends nothing.
    """
    n, layers = int(draw.ints(9000)) + 1, int(draw.ints(30)) + 1
    return {"tensor": [impl.tensor_parallel_bytes(layers, n, size) for size in (1, 2, 8)],
            "pipeline": [impl.pipeline_bytes(stage, 4, layers, n) for stage in range(4)],
            "one stage": impl.pipeline_bytes(0, 1, layers, n),
            "refused": [raises(ValueError, lambda: impl.tensor_parallel_bytes(layers, n, 0), names="size"),
                        raises(ValueError, lambda: impl.pipeline_bytes(4, 4, layers, n), names="stage"),
                        raises(ValueError, lambda: impl.pipeline_bytes(0, 4, 0, n), names="micro_batches")]}


def test_memory_per_rank(impl, draw):
    """16 bytes a parameter: 2 of weight, 2 of gradient, 12 of optimizer. A scheme says which of them are divided.

    zero1 the optimizer's; zero2 and the gradients; zero3 all.
    """
    n = int(draw.ints(9000)) + 1
    schemes = ("data", "zero1", "zero2", "zero3", "tensor")
    return {"drawn": [[impl.memory_per_rank(scheme, n, size)._asdict() for size in (1, 3)] for scheme in schemes],
            "refused": [raises(ValueError, lambda: impl.memory_per_rank("zero4", n, 2), names="scheme"),
                        raises(ValueError, lambda: impl.memory_per_rank("zero1", n, 0), names="size")]}


# -- half precision, and memory for time

def _with_gradients(draw, *gradients):
    parameters = [nn.Parameter(draw(3)) for _ in gradients]
    for p, gradient in zip(parameters, gradients):
        p.grad = gradient
    return parameters


def test_loss_scaler_unscale(impl, draw):
    """unscale divides every gradient by scale, in place, and says whether all of them are finite.

    Where there is no gradient, nothing is done. NaN is not finite either.
    """
    fine = _with_gradients(draw, draw(3), None, draw(3))
    infinite = _with_gradients(draw, draw(3), draw(3) * math.inf)
    nan = _with_gradients(draw, draw(3) * math.nan, draw(3))
    scaler = impl.LossScaler(scale=8.0)
    return {"finite": [scaler.unscale(iter(p)) for p in (fine, infinite, nan, [])],
            "gradients": [[p.grad for p in some] for some in (fine, infinite, nan)], "scale": scaler.scale}


@points(2)
def test_loss_scaler_update(impl, draw):
    """A step that is not finite halves the scale; interval finite steps in a row double it, and are counted anew.

    Also a step that is not finite lets the count begin again.
    """
    finite = (draw.uniform(30) < 0.75).tolist()
    scales = []
    for how in ({}, {"growth": 3.0, "backoff": 0.25, "interval": 1}, {"interval": 3}):
        scaler = impl.LossScaler(**{"scale": 64.0, "interval": 2, **how})
        scales.append([scaler.scale])
        for ok in finite:
            scaler.update(ok)
            scales[-1].append(scaler.scale)
    return {"scales": scales, "at first": impl.LossScaler().scale}


def test_loss_scaler_on_ranks(impl, draw):
    """With a group, a gradient that is infinite on one rank is so for all: they skip the step together.

    Else the ranks' weights would drift apart. group.everyones tells what each rank has found.
    """
    def run(group):
        """Three steps; in one of them a rank has an inf."""
        scaler = impl.LossScaler(scale=4.0, group=group)
        return [scaler.unscale(_with_gradients(draw, g[group.rank])) for g in gradients]
    gradients = [[draw(3) for _ in range(3)] for _ in range(3)]
    gradients[int(draw.ints(3))][int(draw.ints(3))] = draw(3) * math.inf
    return run_threads(3, run)


def test_loss_scaler_refuses(impl, draw):
    """scale is above 0 and finite, growth above 1, backoff between 0 and 1, interval at least 1.

    A ValueError names the argument; NaN is refused by all of them.
    """
    low = -float(draw.uniform())
    bad = {"scale": (0.0, low, math.inf, math.nan), "growth": (1.0, low, math.nan),
           "backoff": (0.0, 1.0, low, math.nan), "interval": (0, -3)}
    return {name: [raises(ValueError, lambda: impl.LossScaler(**{name: value}), names=name) for value in values]
            for name, values in bad.items()}


class Tiny(nn.Module):
    """A model of one matrix, so that a step in half precision costs nothing; it keeps what it computed with."""

    def __init__(self, weight):
        super().__init__()
        self.weight, self.dtypes = nn.Parameter(weight), []

    def forward(self, x):
        y = x @ self.weight
        self.dtypes.append(y.dtype)
        return y


@points(3)
def test_autocast_step(impl, draw):
    """A step in half precision: the scale is undone before clipping, and the loss that comes back has none of it.

    Old gradients dropped, forward under torch.autocast, backward of loss · scale, unscale, clip, step, update.
    """
    found = {}
    for name, scale, max_norm in (("clipped", 1024.0, 0.05), ("not clipped", 256.0, 100.0)):
        model = Tiny((draw(3, 5) * 4).round().float() / 4)
        model.weight.grad = draw(3, 5).float()
        scaler = impl.LossScaler(scale=scale, interval=1)
        inputs, targets = (draw(4, 3) * 4).round().float() / 4, draw.ints(5, 4)
        said = impl.autocast_step(model, Descent(model.parameters()), scaler, inputs, targets, max_norm, torch.bfloat16)
        found[name] = [said, model.weight.detach(), model.weight.grad, scaler.scale, model.dtypes]
    return found


def test_autocast_step_of_an_overflow(impl, draw):
    """Where a gradient is infinite there is no step: weights stay, the norm is None, the scale is halved.

    In float16 a gradient above 65,504 is inf. The next step, with half the scale, may go well.
    """
    model = Tiny((draw(3, 5) * 4).round().float() / 4)
    before = model.weight.detach().clone()
    scaler = impl.LossScaler(scale=2.0**40)
    inputs, targets = (draw(4, 3) * 4).round().float() / 4, draw.ints(5, 4)
    loss, norm = impl.autocast_step(model, Descent(model.parameters()), scaler, inputs, targets)
    return {"loss": loss, "norm": norm, "scale": scaler.scale, "moved": (model.weight - before).abs().max()}


def _twice(draw, make, *inputs, seed=1):
    """Output and gradients of a module, and the next random number."""
    torch.manual_seed(seed)
    module = make()
    inputs = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
    y = module(*inputs)
    between = torch.rand(1, dtype=torch.float64)
    y.square().sum().backward()
    return {"output": y, "gradients of inputs": [x.grad.flatten() for x in inputs if x.requires_grad],
            "of parameters": _gradients(module), "random in between": between,
            "random afterwards": torch.rand(1, dtype=torch.float64)}


@points(2)
def test_checkpointed(impl, draw):
    """A checkpointed block gives the same output, and the same gradients of its inputs and of its parameters.

    Recompute.apply gets the inputs and then the parameters, so that autograd knows all that needs a gradient. An input
    that needs none, such as ids, gets None.
    """
    state = _net(impl, draw).state_dict()

    def make():
        net = Net(impl).to(draw.device, draw.float)
        net.load_state_dict(state)
        return impl.checkpointed(net)
    return {"x needs a gradient": _twice(draw, make, draw(2, 3).requires_grad_()),
            "x needs none": _twice(draw, make, draw(2, 3))}


@points(2)
def test_checkpointed_dropout(impl, draw):
    """The second run drops what the first dropped, and random numbers afterwards go on as without it.

    Keep the random state before the first run; set it before the second; set back afterwards what was there.
    """
    state = _net(impl, draw, hidden=12).state_dict()

    def make():
        net = Net(impl, hidden=12, dropout=0.5).to(draw.device, draw.float)
        net.load_state_dict(state)
        return impl.checkpointed(net)
    return _twice(draw, make, draw(2, 3).requires_grad_())


def test_checkpointed_keeps_its_input(impl, draw):
    """Of a checkpointed block autograd keeps the input and the parameters; the block runs once more, backward.

    Run it in forward without a graph: inside an autograd function there is none.
    """
    net, runs, kept = _net(impl, draw, hidden=50), [], []
    net.first.register_forward_hook(lambda *_: runs.append(torch.is_grad_enabled()))
    block, x = impl.checkpointed(net), draw(2, 3).requires_grad_()

    def keep(y):
        kept.append(tuple(y.shape))
        return y
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda y: y):
        y = block(x)
    once = list(runs)
    y.sum().backward()
    return {"hidden numbers kept": sum(shape == (2, 50) for shape in kept), "runs": [once, runs]}


def test_checkpointed_autocast(impl, draw):
    """The second run computes in the dtype of the first, though the backward pass is outside of torch.autocast.

    Keep whether autocast is on, and its dtype, with the random state.
    """
    model = Tiny((draw(3, 4) * 4).round().float() / 4)
    block, x = impl.checkpointed(model), ((draw(2, 3) * 4).round().float() / 4).requires_grad_()
    with torch.autocast(x.device.type, torch.bfloat16):
        y = block(x)
    y.float().sum().backward()
    block(x).sum().backward()
    return {"dtypes": model.dtypes, "gradients": [x.grad, model.weight.grad]}


def test_checkpointed_of_a_model(impl, draw):
    """A block of a Transformer can be replaced by a checkpointed one: named arguments reach it.

    model.blocks[n] = checkpointed(model.blocks[n]).
    """
    model = _blocks(impl, draw, 1)[0]
    model.blocks[0] = impl.checkpointed(model.blocks[0])
    ids = draw.ints(8, 1, 3)
    logits = model(ids)
    logits.square().mean().backward()
    return {"logits": logits, "gradients": {name.replace("block.", ""): p.grad.flatten()
                                            for name, p in model.named_parameters()
                                            if "v_proj" in name or "norm" in name}}
