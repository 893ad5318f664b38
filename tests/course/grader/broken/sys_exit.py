# verdict: error
# checks: test_flops
# words: sys.exit(1)
import sys


def linear_flops(batch, in_features, out_features):
    sys.exit(1)
