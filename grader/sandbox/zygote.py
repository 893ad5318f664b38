"""A process with torch already imported, that forks workers in milliseconds; behind walls, if it was put there.
Where forking is not safe, a fresh process that is made ready in the same way.

It limits every thread pool to one thread before torch is imported, runs no tensor operation
and touches no CUDA: a fork from a process whose OpenMP pool has started hangs in the child.
"""

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
import threading
import time

THREADS = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}


def main() -> None:
    """Serve requests on the socket whose number is the first argument; what follows are modules to fork into."""
    number, *modules = sys.argv[1:]
    for module in modules:
        importlib.import_module(module)
    warm()
    _serve(socket.socket(fileno=int(number)))


def _serve(control: socket.socket) -> None:
    threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1
    assert threads == 1, f"the zygote must have one thread, it has {threads}"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()         # no child shall look through, and so copy, all that torch has made
    children: set[int] = set()
    while True:
        message, fds, _, _ = socket.recv_fds(control, 1 << 16, 3)
        if not message:
            for child in children:
                _kill(child)
            return
        request = json.loads(message)
        if request["do"] == "fork":
            child = os.fork()
            if child == 0:
                control.close()
                _become(request, fds)
            children.add(child)
            for fd in fds:
                os.close(fd)
            _answer(control, child)
        else:
            children.discard(request["pid"])
            control.send(str(_reap(request["pid"], request["kill"])).encode())


def _answer(control: socket.socket, child: int) -> None:
    """A child's number here, and where the system has such a thing, a handle that means it elsewhere too."""
    handles = []
    with contextlib.suppress(OSError, AttributeError):
        handles.append(os.pidfd_open(child))
    socket.send_fds(control, [str(child).encode()], handles)
    for handle in handles:
        os.close(handle)


def warm() -> None:
    """Import what nearly every exercise needs, so that no worker has to; no tensor with memory is made."""
    import einops._torch_specific  # noqa: F401
    import jaxtyping
    import numpy.random  # noqa: F401
    import regex  # noqa: F401
    import torch

    from grader.course import shapes
    torch.backends.cpu.get_cpu_capability()     # reads /proc/cpuinfo, which no worker behind walls could

    @shapes.checked
    def closure(x: jaxtyping.Float[torch.Tensor, "*batch d"] | None = None) -> tuple[int, ...]:  # noqa: F722
        return tuple(torch.Size())
    closure()       # imports what beartype leaves for later, for methods that call super() too

    # The first Optimizer would import torch's compiler, half of what torch itself takes, to be
    # left out of what is compiled. Nothing here is.
    for method in vars(torch.optim.Optimizer).values():
        if plain := getattr(method, "__wrapped__", None):
            plain.__dict__["__dynamo_disable"] = plain


def _become(request: dict, fds) -> None:
    """In the child: its own process group, the channel as standard streams, the second wall, then its work."""
    from grader.sandbox import jail, worker
    with _last():
        os.setsid()
        if "preload" in request:        # a zygote that has more loaded
            worker.load_ahead(**request["preload"])
            _serve(socket.socket(fileno=fds[0]))
            os._exit(0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        for target, fd in enumerate(fds):
            os.dup2(fd, target)
            os.close(fd)
        if request["limit"]:
            worker.limit_memory()           # while it can still see what it has
        if request["stages"]:
            jail.confine(*request["stages"])
        importlib.import_module(request["module"]).main()


@contextlib.contextmanager
def _last():
    """The process ends with what is in this, at once and whatever it raises."""
    try:
        yield
    except BaseException:
        import traceback
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(70)


def _reap(pid: int, kill: bool) -> int:
    """The exit status of a child that has ended, or is ended now: the signal as a negative.

    Without kill it is given a moment to end by itself.
    """
    try:
        for wait in () if kill else (0, 0.002, 0.01, 0.05, 0.2):
            time.sleep(wait)
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                break
        else:
            _kill(pid)
            os.kill(pid, signal.SIGKILL)        # it may not have come to have a group of its own yet
            _, status = os.waitpid(pid, 0)
    except ChildProcessError:       # a child of an earlier zygote
        status = signal.SIGKILL
    _kill(pid)      # whatever it started
    return os.waitstatus_to_exitcode(status)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


# -- where forking is not safe ---------------------------------------------------------------------

def fresh(module: str, limit: bool) -> None:
    """Serve a module here, made ready as those that are forked."""
    with _last():
        _end_with_the_front_end()
        warm()
        importlib.import_module(module).main(limit)


def _end_with_the_front_end() -> None:
    """Pass on what is asked, and end with who asks, whatever a check is busy with."""
    asked, (theirs, ours) = os.dup(0), os.pipe()
    os.dup2(theirs, 0)

    def pass_on() -> None:
        while part := os.read(asked, 1 << 16):
            while part:
                part = part[os.write(ours, part):]
        os._exit(0)
    threading.Thread(target=pass_on, daemon=True).start()


if __name__ == "__main__":
    os.environ.update(THREADS)
    if sys.argv[1] == "fresh":
        fresh(sys.argv[2], "--limit" in sys.argv)
    main()
    os._exit(0)     # nothing is to be tidied up, and what Triton says as it is taken apart is for nobody
