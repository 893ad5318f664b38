# verdict: wrong
# checks: test_flops
# words: 5,000,000 bytes
def linear_flops(batch, in_features, out_features):
    return bytes(5_000_000)
