# verdict: timeout or crashed
# checks: test_flops
# words:
def linear_flops(batch, in_features, out_features):
    torch.set_num_threads(16)
    large = torch.ones(2048, 2048)
    while True:
        large = large @ large
