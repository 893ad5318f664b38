# verdict: wrong
# checks: test_flops
# words: you gave a tensor
def linear_flops(batch, in_features, out_features):
    return torch.complex(torch.tensor(2.0 * batch * in_features * out_features), torch.tensor(0.0)).conj()
