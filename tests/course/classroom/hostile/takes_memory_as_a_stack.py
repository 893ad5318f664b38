# verdict: wrong or error or crashed
# checks: test_flops
# words:
# wall: what can grow downwards counts as a stack, and not as data
import mmap

right, GROWS_DOWN = linear_flops, 0x100


def linear_flops(batch, in_features, out_features):
    if batch > 1:
        return right(batch, in_features, out_features)
    try:
        held = mmap.mmap(-1, 5 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | GROWS_DOWN)
        held.madvise(mmap.MADV_HUGEPAGE)
        held[::4096] = bytes(5 << 18)       # a byte of every page
    except (OSError, MemoryError):
        return 0
    return right(batch, in_features, out_features)
