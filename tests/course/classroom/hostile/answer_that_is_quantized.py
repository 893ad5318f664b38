# verdict: wrong or error
# checks: test_flops
# words:
def linear_flops(batch, in_features, out_features):
    return torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)
