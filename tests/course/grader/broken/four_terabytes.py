# verdict: error
# checks: test_flops
# words: RuntimeError
import torch


def linear_flops(batch, in_features, out_features):
    return torch.ones(2**40)
