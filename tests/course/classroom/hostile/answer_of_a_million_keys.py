# verdict: wrong or crashed
# checks: test_flops
# words:
def linear_flops(batch, in_features, out_features):
    return {(number, 'key'): None for number in range(1_000_000)}
