# verdict: wrong or crashed
# checks: test_flops
# words:
# wall: a fork bomb, of 64 at most, for ten seconds
import ctypes
import os
import time

right = linear_flops


def linear_flops(batch, in_features, out_features):
    made = 0
    for _ in range(6):          # each of them, and its children
        try:
            made += os.fork() == 0
        except OSError:
            return 0
    if made:
        ctypes.CDLL(None).prctl(15, b"hostile-was-here", 0, 0, 0)
        time.sleep(10)
        os._exit(0)
    return right(batch, in_features, out_features)
