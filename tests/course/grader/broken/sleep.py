# verdict: timeout
# checks: test_flops
# words: no answer within
import time


def linear_flops(batch, in_features, out_features):
    time.sleep(3600)
