# verdict: wrong
# checks: test_flops
# words: meta device
def linear_flops(batch, in_features, out_features):
    return torch.empty(1 << 40, device='meta')
