"""A group of ranks that send each other tensors: threads of one process, or processes that torchrun starts.

Code that is written for a Group runs with either. `run_threads` needs one process and no network, does the same in
every run, and finds a deadlock at once. `torch_group` is torch.distributed: gloo between processes, NCCL between GPUs.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from .sizes import at_least_one


class RankFailed(RuntimeError):
    """What this rank waits for will not come: another rank has raised, or its process is gone."""


class Deadlock(RuntimeError):
    """Every rank that has not returned waits for another one."""


class Group:
    """rank: which one this is, 0 … size − 1. size: how many there are.

    bytes_sent, messages_sent: what this rank has sent so far, counted by the numbers in its tensors. What `everyones`
    and `agree` say to each other, shapes and dtypes, is not counted.
    """

    def __init__(self, rank: int, size: int):
        self.rank, self.size = rank, size
        self.bytes_sent = self.messages_sent = 0

    def send(self, tensor: Tensor, to: int) -> None:
        """Send a tensor to a rank. Waits until that rank receives it."""
        self._transfer("send", tensor, to, None)

    def recv(self, from_: int) -> Tensor:
        """The next tensor that a rank sends to this one, a new tensor. Waits until it is sent."""
        return self._transfer("recv", None, None, from_)

    def exchange(self, tensor: Tensor, to: int, from_: int) -> Tensor:
        """Send to one rank and receive from one, maybe the same, at once. Waits for both, in whatever order they come.

        Where all ranks first send and then receive, each waits for a rank that still sends. exchange does not.
        """
        return self._transfer("exchange", tensor, to, from_)

    def everyones(self, value) -> list:
        """What every rank calls this with, in the order of the ranks. For small things, such as a shape."""
        raise NotImplementedError

    def agree(self, **values) -> None:
        """Raise the same ValueError on all ranks, naming the argument, unless each value is the same on all of them.

        All ranks call it, before anything is sent: group.agree(x=(tuple(x.shape), x.dtype)).
        """
        everyone = self.everyones(values)
        for name in values:
            for rank, others in enumerate(everyone):
                if others[name] != everyone[0][name]:
                    raise ValueError(f"{name} must be alike on all ranks, got {everyone[0][name]} on rank 0 and "
                                     f"{others[name]} on rank {rank}")

    def _transfer(self, operation: str, tensor: Tensor | None, to: int | None, from_: int | None) -> Tensor | None:
        for name, rank in (("to", to), ("from_", from_)):
            if rank is not None and (not 0 <= rank < self.size or rank == self.rank):
                raise ValueError(f"{name} must be another rank out of 0 … {self.size - 1}, got {rank} on rank "
                                 f"{self.rank}")
        if tensor is not None:
            self.bytes_sent += tensor.numel() * tensor.element_size()
            self.messages_sent += 1
        return self._move(operation, tensor, to, from_)

    def _move(self, operation: str, tensor: Tensor | None, to: int | None, from_: int | None) -> Tensor | None:
        raise NotImplementedError


# -- ranks as threads

def run_threads(size: int, function: Callable[[Group], object], errors: bool = False) -> list:
    """Call function(group) on `size` ranks, each in a thread of its own: what they return, in the order of the ranks.

    One rank runs at a time, rank 0 first, until it waits or returns; then the next one that can go on. So every run
    does the same. Each rank begins with a copy of torch's random state and draws from it alone, as processes would;
    afterwards the state is the caller's again.

    Where a rank raises, those that wait for it get a RankFailed that names it. Where none can go on, all that wait get
    a Deadlock that says who waits for whom. The first exception is raised here; with errors=True, none is, and what a
    rank has raised stands in the place of what it returns.
    """
    at_least_one(size=size)
    return _Threads(size).run(function, errors)


class _ThreadGroup(Group):
    def __init__(self, rank: int, threads: "_Threads"):
        super().__init__(rank, threads.size)
        self._threads = threads

    def everyones(self, value) -> list:
        return self._threads.everyones(self.rank, value)

    def _move(self, operation, tensor, to, from_):
        return self._threads.move(self.rank, operation, tensor, to, from_)


class _Threads:
    """Who runs, who waits for whom, and what lies in between. Only the rank whose turn it is looks in here."""

    def __init__(self, size: int):
        self.size = size
        self.turns = [_closed() for _ in range(size)]
        self.over = _closed()
        self.waiting: dict[int, str] = {}               # the operation that a rank waits in
        self.ready = set(range(size))
        self.sends: dict[int, tuple[int, Tensor]] = {}  # by the rank that sends: to whom, and what
        self.recvs: dict[int, int] = {}                 # by the rank that receives: from whom
        self.arrived: dict[int, object] = {}
        self.said: dict[int, object] = {}               # in everyones
        self.failed: dict[int, BaseException] = {}      # in the order of time
        self.problems: dict[int, BaseException] = {}    # what a rank that waits is to raise
        self.results: list = [None] * size
        self.random = [random_state()] * size

    def run(self, function: Callable[[Group], object], errors: bool) -> list:
        before, grad = random_state(), torch.is_grad_enabled()
        modes = _modes()
        threads = [threading.Thread(target=self._run, args=(rank, function, grad, modes), daemon=True)
                   for rank in range(self.size)]
        for thread in threads:
            thread.start()
        self.turns[0].release()
        self.over.acquire()
        for thread in threads:
            thread.join()
        set_random_state(before)
        if self.failed and not errors:
            raise next(iter(self.failed.values()))
        return [self.failed.get(rank, result) for rank, result in enumerate(self.results)]

    def _run(self, rank: int, function: Callable[[Group], object], grad: bool, modes: list) -> None:
        """What a rank's thread does. What torch keeps for each thread is set as the caller has it."""
        self._take_turn(rank)
        try:
            with contextlib.ExitStack() as stack:
                for mode in modes:
                    stack.enter_context(mode)
                stack.enter_context(torch.set_grad_enabled(grad))
                # A backward pass stays in its rank's thread: a GPU's own would serve all ranks, and wait for itself.
                stack.enter_context(torch.autograd.set_multithreading_enabled(False))
                self.results[rank] = function(_ThreadGroup(rank, self))
        except BaseException as error:      # a KeyboardInterrupt, too: run raises it
            self._fail(rank, error)
        self.ready.discard(rank)
        self._pass_on(rank)

    def move(self, rank: int, operation: str, tensor: Tensor | None, to: int | None, from_: int | None):
        self._must_be_there(*(other for other in (to, from_) if other is not None))
        if to is not None:
            self.sends[rank] = to, tensor.detach().clone()
            self._deliver(rank, to)
        if from_ is not None:
            self.recvs[rank] = from_
            self._deliver(from_, rank)
        if self._pending(rank):
            self._wait(rank, operation)
        return self.arrived.pop(rank, None)

    def _deliver(self, sender: int, receiver: int) -> None:
        to, tensor = self.sends.get(sender, (None, None))
        if to == receiver and self.recvs.get(receiver) == sender:
            del self.sends[sender], self.recvs[receiver]
            self.arrived[receiver] = tensor
            self.ready |= {rank for rank in (sender, receiver) if not self._pending(rank)}

    def _pending(self, rank: int) -> bool:
        return rank in self.sends or rank in self.recvs

    def everyones(self, rank: int, value) -> list:
        self._must_be_there(*range(self.size))
        self.said[rank] = value
        if len(self.said) < self.size:
            self._wait(rank, "agree")
        else:
            everyone, self.said = [self.said[other] for other in range(self.size)], {}
            self.arrived = dict.fromkeys(range(self.size), everyone)
            self.ready = set(range(self.size))
        return list(self.arrived.pop(rank))

    def _must_be_there(self, *others: int) -> None:
        for other in others:
            if other in self.failed:
                raise self._failure(other)

    def _failure(self, rank: int) -> RankFailed:
        """That this rank is gone, and why; where another's failure is the reason, that one."""
        error = self.failed[rank]
        if isinstance(error, (RankFailed, Deadlock)):
            return type(error)(*error.args)
        return RankFailed(f"rank {rank} failed: {type(error).__name__}: {error}")

    def _fail(self, rank: int, error: BaseException) -> None:
        self.failed[rank] = error
        for other in list(self.waiting):
            if other not in self.ready and rank in self._awaited(other):
                self._wake(other, self._failure(rank))

    def _awaited(self, rank: int) -> list[int]:
        """Whom a waiting rank waits for."""
        if self.waiting[rank] == "agree":
            return [other for other in range(self.size) if other not in self.said]
        receiver = self.sends.get(rank, (None, None))[0]
        return [other for other in (receiver, self.recvs.get(rank)) if other is not None]

    def _wake(self, rank: int, problem: BaseException) -> None:
        self.problems[rank] = problem
        for kept in (self.sends, self.recvs, self.arrived, self.said):
            kept.pop(rank, None)
        self.ready.add(rank)

    def _wait(self, rank: int, operation: str) -> None:
        self.waiting[rank] = operation
        self.ready.discard(rank)
        self._pass_on(rank)
        self._take_turn(rank)
        del self.waiting[rank]
        if problem := self.problems.pop(rank, None):
            raise problem

    def _take_turn(self, rank: int) -> None:
        self.turns[rank].acquire()
        set_random_state(self.random[rank])

    def _pass_on(self, rank: int) -> None:
        """Let the next rank run that can. Where none can, all that wait are told of the deadlock."""
        self.random[rank] = random_state()
        if not self.ready and self.waiting:
            words = "no rank can go on: " + "; ".join(map(self._words, range(self.size)))
            for other in self.waiting:
                self._wake(other, Deadlock(words))
        following = [(rank + n) % self.size for n in range(1, self.size + 1)]
        following = [other for other in following if other in self.ready]
        (self.turns[following[0]] if following else self.over).release()

    def _words(self, rank: int) -> str:
        if rank not in self.waiting:
            return f"rank {rank} has {'failed' if rank in self.failed else 'returned'}"
        others = " and ".join(f"rank {other}" for other in dict.fromkeys(self._awaited(rank)))
        return f"rank {rank} waits in {self.waiting[rank]} for {others}"


def _closed() -> threading.Lock:
    """A lock that the next one to ask for it waits at, until another thread releases it."""
    lock = threading.Lock()
    lock.acquire()
    return lock


def random_state() -> tuple[Tensor, Tensor | None]:
    """The state of torch's random numbers: the CPU's and, where one is used, the current GPU's."""
    return torch.get_rng_state(), torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None


def set_random_state(state: tuple[Tensor, Tensor | None]) -> None:
    """Go on from a state that random_state has told."""
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1])


def _modes() -> list:
    """What looks on at, or changes, the caller's operations: a new thread has none of it."""
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
    return [*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack()]


# -- ranks as processes

@contextlib.contextmanager
def torch_group() -> Iterator[Group]:
    """The group of the processes that torchrun has started, over torch.distributed.

    gloo on CPUs; NCCL where there are GPUs, one for each process, which becomes its current device.

    Raises ValueError naming the variable that torchrun would have set.
    """
    import torch.distributed as dist
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        if name not in os.environ:
            raise ValueError(f"{name} is not set: start this with torchrun --nproc-per-node 2 FILE")
    if gpu := torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if gpu else "gloo")
    try:
        yield _TorchGroup(torch.device("cuda", torch.cuda.current_device()) if gpu else torch.device("cpu"))
    finally:
        dist.destroy_process_group()


class _TorchGroup(Group):
    """torch's own send and receive know shape and dtype beforehand; here they are sent ahead."""

    DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
              torch.int8, torch.uint8, torch.bool)
    AXES = 8

    def __init__(self, device: torch.device):
        import torch.distributed as dist
        super().__init__(dist.get_rank(), dist.get_world_size())
        self.device = device

    def everyones(self, value) -> list:
        import torch.distributed as dist
        everyone: list = [None] * self.size
        with self._named("agree", "the others"):
            dist.all_gather_object(everyone, value)
        return everyone

    def _move(self, operation, tensor, to, from_):
        others = " and ".join(f"rank {other}" for other in dict.fromkeys((to, from_)) if other is not None)
        with self._named(operation, others):
            ahead = None
            if tensor is not None:
                shape = [*tensor.shape] + [0] * (self.AXES - tensor.ndim)
                ahead = torch.tensor([self.DTYPES.index(tensor.dtype), tensor.ndim, *shape], device=self.device)
            expected = None if from_ is None else torch.empty(2 + self.AXES, dtype=torch.int64, device=self.device)
            self._at_once(ahead, to, expected, from_)
            made = content = None
            if expected is not None:
                dtype, ndim, *shape = expected.tolist()
                made = torch.empty(shape[:ndim], dtype=self.DTYPES[dtype], device=self.device)
            if tensor is not None:
                content = tensor.detach().to(self.device).contiguous()
            self._at_once(content, to, made, from_)
        return made

    @staticmethod
    def _at_once(content: Tensor | None, to: int | None, place: Tensor | None, from_: int | None) -> None:
        """Send the bytes of one tensor and fill another; what is empty is not sent."""
        import torch.distributed as dist
        operations = []
        if content is not None and content.numel():
            operations.append(dist.P2POp(dist.isend, content.view(-1).view(torch.uint8), to))
        if place is not None and place.numel():
            operations.append(dist.P2POp(dist.irecv, place.view(-1).view(torch.uint8), from_))
        for work in dist.batch_isend_irecv(operations) if operations else []:
            work.wait()

    @contextlib.contextmanager
    def _named(self, operation: str, others: str) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            said = str(error).splitlines()[0]
            raise RankFailed(f"rank {self.rank} waited in {operation} for {others}, which cannot go on: {said}") \
                from error
