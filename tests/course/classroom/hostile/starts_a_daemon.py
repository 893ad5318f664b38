# verdict: passed or wrong or error or crashed
# checks: test_flops
# words:
# wall: a child in a session of its own outlives the run
import ctypes
import os
import time

right = linear_flops


def linear_flops(batch, in_features, out_features):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(15, b"hostile-was-here", 0, 0, 0)
            os.closerange(0, 1024)
            time.sleep(40)
        os._exit(0)
    return right(batch, in_features, out_features)
