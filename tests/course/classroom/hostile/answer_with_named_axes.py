# verdict: wrong or error
# checks: test_flops
# words:
def linear_flops(batch, in_features, out_features):
    return torch.ones(2, 3, names=('batch', 'seq'))
