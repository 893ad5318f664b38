# verdict: wrong or error or crashed
# checks: test_flops
# words:
# wall: a terabyte that is only read takes two gigabytes of tables
import mmap

right, NO_RESERVE = linear_flops, 0x4000


def linear_flops(batch, in_features, out_features):
    if batch > 1:
        return right(batch, in_features, out_features)
    try:
        held = mmap.mmap(-1, 1 << 40, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE, mmap.PROT_READ)
        held[::2 << 20]
    except (OSError, MemoryError):
        return 0
    return right(batch, in_features, out_features)
