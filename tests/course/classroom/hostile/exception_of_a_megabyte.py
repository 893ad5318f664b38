# verdict: error
# checks: test_flops
# words: ValueError: loud
def linear_flops(batch, in_features, out_features):
    raise ValueError("loud " * 200_000)
