# verdict: wrong or error
# checks: test_flops
# words:
def linear_flops(batch, in_features, out_features):
    return torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])
