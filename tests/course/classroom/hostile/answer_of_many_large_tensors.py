# verdict: wrong
# checks: test_flops
# words:
def linear_flops(batch, in_features, out_features):
    return [torch.zeros(1).expand(1 << 24)] * 100       # 64 MB each once they are written out
