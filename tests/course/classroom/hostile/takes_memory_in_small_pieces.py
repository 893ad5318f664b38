# verdict: error or timeout or crashed
# checks: test_flops
# words:
def linear_flops(batch, in_features, out_features):
    pieces = [torch.ones(1 << 24)]
    while len(pieces) < 100:            # 64 MB each, up to 6 GB
        pieces.append(pieces[-1] + 1)
    return 0
