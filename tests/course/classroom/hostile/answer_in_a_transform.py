# verdict: wrong or error
# checks: test_flops
# words:
def linear_flops(batch, in_features, out_features):
    kept = []
    torch.vmap(lambda x: kept.append(x) or x)(torch.ones(3))
    return kept[0]
