# verdict: error
# checks: test_flops
# words: RecursionError
def linear_flops(batch, in_features, out_features):
    return linear_flops(batch, in_features, out_features)
