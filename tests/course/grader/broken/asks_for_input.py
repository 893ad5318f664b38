# verdict: error
# checks: test_flops
# words: input() cannot be used here
def linear_flops(batch, in_features, out_features):
    return int(input("how many? "))
