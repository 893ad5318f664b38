# verdict: any
# checks: test_flops
# words:
import os


def linear_flops(batch, in_features, out_features):
    os.unlink(__file__)
    os.symlink("/etc/passwd", __file__)
    return 1 / 0
