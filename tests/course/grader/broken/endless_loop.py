# verdict: timeout
# checks: test_flops
# words: no answer within
def linear_flops(batch, in_features, out_features):
    while True:
        pass
