# verdict: wrong
# checks: test_flops
# words: more
def linear_flops(batch, in_features, out_features):
    for _ in range(100):
        print("x" * (1 << 20))
    return 0
