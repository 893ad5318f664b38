# verdict: wrong
# checks: test_flops
# words: a sparse tensor
def linear_flops(batch, in_features, out_features):
    return torch.zeros(1 << 20, 1 << 20, layout=torch.sparse_coo)
