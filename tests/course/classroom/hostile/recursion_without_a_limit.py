# verdict: crashed
# checks: test_flops
# words: SIGSEGV
import sys


def deeper(x):
    return sorted([x], key=deeper)      # through C, so that the stack itself ends


def linear_flops(batch, in_features, out_features):
    sys.setrecursionlimit(10**8)
    return deeper(0)
