# verdict: wrong
# checks: test_flops
# words: characters, many times what is expected
def linear_flops(batch, in_features, out_features):
    return ['x' * 999_999] * 8
