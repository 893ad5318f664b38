# verdict: error
# checks: test_flops
# words: TypeError
def linear_flops(batch):
    return 2 * batch
