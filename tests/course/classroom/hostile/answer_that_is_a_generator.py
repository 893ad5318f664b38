# verdict: wrong
# checks: test_flops
# words: a generator
def linear_flops(batch, in_features, out_features):
    return (number for number in iter(int, 1))
