# verdict: wrong
# checks: test_flops
# words: too large for an answer
def linear_flops(batch, in_features, out_features):
    return torch.zeros(1).expand(1 << 40)       # four bytes that say they are four terabytes
