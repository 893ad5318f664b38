# verdict: wrong
# checks: test_flops
# words: you gave
def linear_flops(batch, in_features, out_features):
    return float('inf')
