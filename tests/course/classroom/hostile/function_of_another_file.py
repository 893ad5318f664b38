# verdict: error
# checks: test_flops
# words: ZeroDivisionError
import os


def linear_flops(batch, in_features, out_features):
    return helper()


def helper():
    return 1 / 0


there = os.path.join(os.path.dirname(__file__), "..", "..", "..", "..", "..", "etc", "passwd")
helper.__code__ = helper.__code__.replace(co_filename=there, co_firstlineno=1)
