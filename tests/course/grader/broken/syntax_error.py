# verdict: error
# checks: all
# words: SyntaxError
def linear_flops(batch, in_features, out_features:
    return 1
