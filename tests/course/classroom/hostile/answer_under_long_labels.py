# verdict: wrong
# checks: test_flops
# words: characters, many times what is expected
def linear_flops(batch, in_features, out_features):
    return {f"{number}{'k' * 190}": 0 for number in range(1_000)}
