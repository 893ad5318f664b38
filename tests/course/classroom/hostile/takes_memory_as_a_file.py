# verdict: wrong or error or crashed
# checks: test_flops
# words:
# wall: memfd_create counts to nobody
import os

right = linear_flops


def linear_flops(batch, in_features, out_features):
    if batch > 1:
        return right(batch, in_features, out_features)
    try:
        os.posix_fallocate(os.memfd_create("hostile-was-here"), 0, 5 << 30)
    except (OSError, MemoryError):
        return 0
    return right(batch, in_features, out_features)
