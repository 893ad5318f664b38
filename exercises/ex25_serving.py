"""Serving: many users, one model.

Requests come and go, each with a text of its own length. Their keys and values lie in blocks of equal size, which are
lent, shared and given back as a computer's memory is; a scheduler decides at every step whose tokens are computed. So
one pass over the weights serves all who are there, and each gets the text that it would get alone. Kwon et al., 2023
(arXiv 2309.06180); Yu et al., 2022 (Orca, OSDI).
"""

import hashlib
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from given.sizes import at_least_one

from .ex10_grouped_query_attention import grouped_attention
from .ex11_kv_cache import KVCache, cache_bytes
from .ex13_transformer import ModelConfig, Transformer, make_caches
from .ex15_generation import Sampling


class OutOfBlocks(RuntimeError):
    """Given: there are too few free blocks for what was asked; nothing was changed."""


# -- who holds which block

def blocks_needed(positions: int, block_size: int) -> int:
    """How many blocks of block_size positions hold this many positions; the last one may be partly filled.

    Raises ValueError naming positions where they are below 0, and block_size where it is below 1.
    """
    raise NotImplementedError


def blocks_that_fit(config: ModelConfig, block_size: int, memory: int, bytes_per_value: int) -> int:
    """How many blocks a PagedKVCache for such a model can lend if it may take this many bytes of memory.

    A block is block_size positions in all layers at once, as one row's cache of lesson 11 is. The cache has one block
    more than it lends, and that one has to fit, too.

    Raises ValueError naming memory where it is too little for one block to lend, and what cache_bytes raises.
    """
    raise NotImplementedError


def block_hash(previous: bytes, ids: list[int]) -> bytes:
    """A name for what a block holds: a SHA-256 digest of previous and of ids, the block's tokens.

    previous is the hash of the block before it in the text, b"" for a text's first block. So two blocks have the same
    hash if all tokens up to their ends are the same: a key depends on every token before it, in earlier blocks, too.
    Digested are previous and then each id as 8 bytes, so that [1, 23] and [12, 3] differ.
    """
    raise NotImplementedError


class BlockAllocator:
    """Lends the blocks 0 … blocks − 1, counts who holds each, and finds a block again by what it holds.

    counts: for each block, by how many it is held; a block of count 0 is free. unused: the free blocks, as keys, the
    one that is free for the longest time first. A free block keeps its hash, and may be taken again by it, until
    allocate needs it for something new. by_hash: the block of each known hash; hashes: the hash of each such block.

    Raises ValueError naming blocks where they are below 1.
    """

    def __init__(self, blocks: int):
        """Given."""
        at_least_one(blocks=blocks)
        self.counts: list[int] = [0] * blocks
        self.unused: OrderedDict[int, None] = OrderedDict.fromkeys(range(blocks))
        self.by_hash: dict[bytes, int] = {}
        self.hashes: dict[int, bytes] = {}

    def allocate(self) -> int:
        """A block for something new, held once: the one that is free for the longest time. Its hash is forgotten.

        Raises OutOfBlocks where none is free.
        """
        raise NotImplementedError

    def share(self, block: int) -> None:
        """One more holds this block.

        Raises ValueError naming block where it is not one of the blocks, or free.
        """
        raise NotImplementedError

    def free(self, block: int) -> None:
        """One less holds this block. With the last one it is free; its hash stays.

        Raises ValueError naming block where it is not one of the blocks, or already free.
        """
        raise NotImplementedError

    def _must_be_held(self, block: int) -> None:
        """Given: raise ValueError naming block unless somebody holds it."""
        if not (0 <= block < len(self.counts) and self.counts[block]):
            raise ValueError(f"block {block} is not held by anybody, of blocks 0 … {len(self.counts) - 1}")

    def register(self, block: int, hash: bytes) -> None:
        """From now on this block can be found by its hash: it is full, and its keys and values are written.

        A hash that is known already stays with the block that has it: that one holds the same. Else a block that has
        another hash loses that one.

        Raises ValueError naming block where it is not one of the blocks, or free, also where the hash is known.
        """
        raise NotImplementedError

    def reuse(self, hash: bytes) -> int | None:
        """The block of this hash, which one more holds from now on, held or free as it was; None if none has it."""
        raise NotImplementedError


# -- what the blocks hold

def paged_attention(
    q: Float[Tensor, "batch heads q head_dim"],
    keys: Float[Tensor, "blocks block_size kv_heads head_dim"],
    values: Float[Tensor, "blocks block_size kv_heads head_dim"],
    tables: Int[Tensor, "batch most_blocks"],
    lengths: Int[Tensor, " batch"],
) -> Float[Tensor, "batch heads q head_dim"]:
    """Attention of each row's q newest tokens to all of the row's keys, which lie in blocks.

    tables[row]: the blocks of the row's text, in order; position p is place p mod block_size of block
    tables[row, p // block_size]. What stands behind the row's last block may be the number of any block: it is not
    looked at. lengths[row]: how many positions the row has, at least q; its queries are the last q of them, and each
    sees itself and what is before it. Query heads share the kv_heads as in lesson 10.

    Raises ValueError naming lengths where one is below q, or has no room in the row's blocks.

    To be written here: torch's scaled_dot_product_attention and MultiheadAttention are not used.
    """
    raise NotImplementedError


class PagedKVCache:
    """Keys and values of many texts, in blocks of block_size positions that are lent as they are needed.

    keys, values: (layers, blocks + 1, block_size, kv_heads, head_dim). The last block is nobody's: it is always 0, and
    padding is read from there. allocator: lends the other blocks. tables: for each text, by its id, the list of its
    blocks, in order; lengths: how many positions of it are reserved (after the pass, computed). A place in a layer has
    a slot number: block · block_size + place within the block; `padding` is the number of one that is always 0.

    Without a dtype it is torch's default, float32. Raises ValueError naming a size that is below 1.
    """

    def __init__(
        self,
        layers: int,
        kv_heads: int,
        head_dim: int,
        blocks: int,
        block_size: int,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ):
        """Given."""
        at_least_one(layers=layers, kv_heads=kv_heads, head_dim=head_dim, blocks=blocks, block_size=block_size)
        shape = (layers, blocks + 1, block_size, kv_heads, head_dim)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.block_size, self.padding = block_size, blocks * block_size
        self.allocator = BlockAllocator(blocks)
        self.tables: dict[Hashable, list[int]] = {}
        self.lengths: dict[Hashable, int] = {}
        self.chains: dict[Hashable, list[bytes]] = {}       # the hashes of a text's full blocks, as far as registered

    def start(self, id: Hashable, ids: list[int] | None = None) -> int:
        """A new text. Blocks that hold its first tokens already are shared; returns how many positions they hold.

        ids: the tokens that are going to be computed; left out, nothing is shared. Only full blocks are shared, one
        after the other from the first, up to the first that the allocator does not know; and never all of ids: the
        last token is left to compute, since its logits are needed.

        Raises ValueError naming id where there is a text of this id.
        """
        raise NotImplementedError

    def reserve(self, id: Hashable, n: int) -> None:
        """Make room for n more positions of a text, which is so much longer afterwards.

        New blocks join the end of its table. Where its last block is partly filled and others hold it too, writing
        into it would change their text: it is copied in all layers, the text holds the copy, and lets go of the old
        one (copy on write). The copy is allocated first, then the new blocks in order.

        Raises OutOfBlocks, and leaves everything as it was, where the allocator has too few free blocks; ValueError
        naming n where it is below 1.
        """
        raise NotImplementedError

    def slots(self, id: Hashable) -> Int[Tensor, " length"]:
        """The slot of each position of a text, on the CPU: block · block_size + place within the block."""
        raise NotImplementedError

    def write(
        self,
        layer: int,
        slots: Int[Tensor, "batch q"],
        k: Float[Tensor, "batch kv_heads q head_dim"],
        v: Float[Tensor, "batch kv_heads q head_dim"],
    ) -> None:
        """Write keys and values into a layer, each position of each row into its slot."""
        raise NotImplementedError

    def gather(
        self, layer: int, slots: Int[Tensor, "batch k"]
    ) -> tuple[Float[Tensor, "batch kv_heads k head_dim"], Float[Tensor, "batch kv_heads k head_dim"]]:
        """Read the keys and values of a layer from these slots, as attention wants them."""
        raise NotImplementedError

    def commit(self, id: Hashable, ids: list[int]) -> None:
        """Register the blocks of a text that are full by now, so that others can share them.

        ids: the text's tokens, at least as many as it has positions. To be called when the keys and values of all its
        positions are written. The last block, as long as it is partly filled, is not registered.
        """
        raise NotImplementedError

    def fork(self, id: Hashable, new: Hashable) -> None:
        """A second text that begins with all of the first: it shares every block, the last one too.

        Raises ValueError naming new where there is a text of this id.
        """
        raise NotImplementedError

    def free(self, id: Hashable) -> None:
        """Let go of a text and of all its blocks, the last one first.

        So the blocks that begin a text, which others are likelier to share, stay free, and findable, for longer.
        """
        raise NotImplementedError


class PagedRows(KVCache):
    """One layer of a PagedKVCache for one forward pass over several texts: a KVCache to lesson 11's attention.

    new: for each row, the slots of its new tokens, (rows, q). seen: the slots of all its positions, the new ones last,
    (rows, k); shorter rows have padding in front. length: how many positions are there without the new ones, k − q.
    """

    def __init__(self, cache: PagedKVCache, layer: int, new: Int[Tensor, "rows q"], seen: Int[Tensor, "rows k"]):
        """Given."""
        self.cache, self.layer, self.new, self.seen = cache, layer, new, seen
        self.length = seen.shape[1] - new.shape[1]

    def update(
        self, k: Float[Tensor, "rows kv_heads q head_dim"], v: Float[Tensor, "rows kv_heads q head_dim"]
    ) -> tuple[Float[Tensor, "rows kv_heads k head_dim"], Float[Tensor, "rows kv_heads k head_dim"]]:
        """Write the new keys and values into their slots, then read all that the rows see."""
        raise NotImplementedError


# -- whose turn it is

@dataclass(frozen=True, kw_only=True)
class Request:
    """Given: what one user asks for.

    id: its name, anything hashable. prompt: token ids. max_new_tokens: how many it gets at most. stop: ids that end its
    text, and are not part of it. seed: of its own random numbers. sampling: how its tokens are chosen.

    Raises ValueError naming prompt where it is empty or holds a number below 0, max_new_tokens where it is below 1, and
    seed where torch takes none such.
    """

    id: Hashable
    prompt: list[int] | tuple[int, ...]
    max_new_tokens: int
    stop: Iterable[int] = ()
    seed: int = 0
    sampling: Sampling = field(default_factory=Sampling)

    def __post_init__(self):
        object.__setattr__(self, "prompt", tuple(self.prompt))
        object.__setattr__(self, "stop", frozenset(self.stop))
        if not self.prompt or min(self.prompt) < 0:
            raise ValueError(f"prompt must hold at least one token, none below 0, got {self.prompt}")
        at_least_one(max_new_tokens=self.max_new_tokens)
        if not -2**63 <= self.seed < 2**64:
            raise ValueError(f"seed must be in -2**63 … 2**64 - 1, got {self.seed}")


class Job:
    """Given: a request on its way. tokens: its prompt and what it got so far. u: a random number for each new token.

    The numbers are those that lesson 15's generate draws for the prompt alone. They are drawn once: a request that is
    begun anew gets the same text.
    """

    def __init__(self, request: Request):
        self.request, self.id, self.tokens = request, request.id, list(request.prompt)
        rng = torch.Generator().manual_seed(request.seed)
        self.u = torch.rand(request.max_new_tokens, generator=rng, dtype=torch.float64)

    @property
    def new_tokens(self) -> int:
        """How many tokens it got so far."""
        return len(self.tokens) - len(self.request.prompt)


class Scheduler:
    """Decides whose tokens the next forward pass computes: first come, first served.

    budget: tokens per step, of all requests together. most: how many requests run at once. reuse: whether a new text
    shares the blocks of earlier ones. waiting, running: jobs, in the order in which they arrived; every running job
    arrived before every waiting one. preemptions, computed, reused: how often a job was sent back to wait, how many
    tokens were planned, and how many positions were found in shared blocks instead.

    Raises ValueError naming budget or most where it is below 1.
    """

    def __init__(self, cache: PagedKVCache, budget: int, most: int, reuse: bool = True):
        """Given."""
        at_least_one(budget=budget, most=most)
        self.cache, self.budget, self.most, self.reuse = cache, budget, most, reuse
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []
        self.preemptions = self.computed = self.reused = 0

    def find(self, id: Hashable) -> Job | None:
        """Given: the job of this id, running or waiting; None if there is none."""
        return next((job for job in [*self.running, *self.waiting] if job.id == id), None)

    def add(self, job: Job) -> None:
        """It waits, behind all who came before it."""
        raise NotImplementedError

    def remove(self, job: Job) -> None:
        """It is finished or cancelled, wherever it stands: it neither runs nor waits, and its blocks are free."""
        raise NotImplementedError

    def preempt(self) -> None:
        """Send the running job that arrived last back to wait, in front of all who wait. Counted in preemptions.

        Its blocks are free. Its tokens stay, and are computed again when its turn comes.
        """
        raise NotImplementedError

    def advance(self, job: Job, left: int) -> int:
        """Reserve room for the tokens of a job that are not computed yet, at most left of them; returns how many, and
        adds them to `computed`.

        In a step, a prompt gets what the budget leaves of it (chunked prefill), and a job whose prompt is computed the
        one token that it got last. Where there are too few blocks, what the cache raises; nothing is reserved then.
        """
        raise NotImplementedError

    def plan_running(self, left: int) -> list[tuple[Job, int]]:
        """The running jobs' part of a step: (job, how many of its tokens) for each, at most left tokens in all.

        They take turns as they arrived, until nothing is left. Where a job finds too few blocks, the job that arrived
        last is preempted, and the job tries again; if it is itself the last, it is the one that goes.
        """
        raise NotImplementedError

    def plan_waiting(self, left: int) -> list[tuple[Job, int]]:
        """Let jobs in that wait: (job, how many of its tokens) for each, at most left tokens in all.

        As they arrived, while something is left, fewer than most are running, and there are blocks for it. A job that
        is let in starts in the cache, sharing what it can (counted in reused) where reuse says so. If there are too
        few blocks for its first tokens, it lets go of what it shares and waits on, and so do all behind it: nobody
        overtakes.
        """
        raise NotImplementedError

    def plan(self) -> list[tuple[Job, int]]:
        """One step: (job, how many of its tokens to compute) for each, at most budget tokens in all.

        First those who are running; what they leave is for those who wait. A step in which somebody was preempted lets
        nobody in: the blocks are needed.
        """
        raise NotImplementedError


# -- all together

class Output(NamedTuple):
    """Given: what one request got in one step.

    token: its next token; None where it got none. finished: None while it goes on; "stop" where a stop token ended it,
    "length" with the last of max_new_tokens, "error" where its token could not be chosen; error then says why.
    """

    id: Hashable
    token: int | None
    finished: str | None = None
    error: str | None = None


class Engine:
    """Serves requests with one model: each gets what lesson 15's generate gives it alone, all of them get it at once.

    model: a Transformer of lesson 13, which is put into eval mode. blocks, block_size: of the PagedKVCache, in the
    dtype and on the device of the model's parameters. budget: tokens per step. most: requests that run at once. reuse:
    whether prefixes are shared. cache and scheduler are attributes, too.

    Raises ValueError naming a size that is below 1, and what make_caches raises where the model takes no caches.
    """

    def __init__(
        self,
        model: Transformer,
        blocks: int,
        block_size: int = 16,
        budget: int = 256,
        most: int = 32,
        reuse: bool = True,
    ):
        """Given."""
        config, weight = model.config, next(model.parameters())
        make_caches(config, 1, 1)           # raises where the model cannot decode token by token
        self.model = model.eval()
        self.cache = PagedKVCache(config.layers, config.kv_heads, config.head_dim, blocks, block_size, weight.dtype,
                                  weight.device)
        self.scheduler = Scheduler(self.cache, budget, most, reuse)

    @property
    def unfinished(self) -> int:
        """Given: how many requests are running or waiting."""
        return len(self.scheduler.running) + len(self.scheduler.waiting)

    def add(self, request: Request) -> None:
        """Take in a request, which is served from the next step on.

        Its last token is never computed with, so it needs one position less than it may have tokens.

        Raises ValueError, and takes nothing in, naming id where a request of this id is not finished; prompt where it
        holds an id outside the vocabulary, has no room for one new token in the model's max_seq_len, or needs more
        blocks than there are; max_new_tokens where the prompt has room, but not with all of these.
        """
        raise NotImplementedError

    def cancel(self, id: Hashable) -> bool:
        """Its user has gone: the request ends at once, its blocks are free. False where there is no such request."""
        raise NotImplementedError

    def forward(self, jobs: list[Job], n: int) -> Float[Tensor, "jobs vocab"]:
        """One forward pass over the n newest positions of each job: the logits after its last one.

        Room for them is reserved: a job's n positions are the last of its cache.lengths[id] ones. A row of slots for
        each job, filled up with padding in front, is what it sees; the last n of them are new. A mask hides the padding
        (there is none where all are equally long), and positions say where each job's tokens stand. Each layer gets a
        PagedRows. No gradients.
        """
        raise NotImplementedError

    def choose(self, job: Job, logits: Float[Tensor, " vocab"]) -> Output:
        """Choose a job's next token by its request's sampling, from its own numbers, and say how the job goes on.

        A token joins job.tokens, unless it is a stop token: then the job is finished, and gets no token. Where sampling
        raises ValueError (a temperature of 1e-320 leaves no token to choose), this job ends with an error, alone.
        """
        raise NotImplementedError

    def step(self) -> list[Output]:
        """Compute what the scheduler plans, and give each job whose tokens are all computed its next one.

        Jobs with equally many planned tokens share one forward pass, so a step has one for all who get a token each,
        and one for a piece of a prompt. Then the cache is told which blocks are full; and who is finished is removed.
        An Output for each job that got a token or is finished, in the order in which they arrived; none for a prompt
        that is not done. Where nobody is there, nothing is computed.

        Where a forward pass fails (no memory, Ctrl-C), the error goes on; but first, all running jobs are preempted,
        since the cache lacks what it has reserved: so a later step can begin them anew, and nobody loses a token.
        """
        raise NotImplementedError


def serve(engine: Engine, requests: Iterable[Request]) -> dict[Hashable, list[int]]:
    """Given: add these requests at once and step until none is left: the new tokens of each."""
    texts = {}
    for request in requests:
        engine.add(request)
        texts[request.id] = []
    while engine.unfinished:
        for output in engine.step():
            if output.token is not None:
                texts[output.id].append(output.token)
    return texts
