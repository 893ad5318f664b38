# verdict: error
# checks: test_flops
# words: ValueError: xxxx
def linear_flops(batch, in_features, out_features):
    raise ValueError("x" * (1 << 20) + "\n" * (1 << 20))
