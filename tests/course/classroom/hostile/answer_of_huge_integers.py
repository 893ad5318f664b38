# verdict: wrong
# checks: test_flops
# words: characters, many times what is expected
def linear_flops(batch, in_features, out_features):
    return [10**4299 + number for number in range(1_600)]
