# verdict: wrong or crashed
# checks: test_flops
# words:
# wall: three children take two gigabytes each
import ctypes
import os
import time

right = linear_flops


def linear_flops(batch, in_features, out_features):
    for _ in range(3):
        try:
            if os.fork() == 0:
                ctypes.CDLL(None).prctl(15, b"hostile-was-here", 0, 0, 0)
                held = b"x" * (2 << 30)
                time.sleep(5 + len(held) * 0)
                os._exit(0)
        except (OSError, MemoryError):
            return 0
    return right(batch, in_features, out_features)
