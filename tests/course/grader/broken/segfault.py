# verdict: crashed
# checks: test_flops
# words: SIGSEGV
import ctypes


def linear_flops(batch, in_features, out_features):
    ctypes.string_at(0)
