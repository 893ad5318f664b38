# verdict: error
# checks: test_flops
# words: MemoryError
def linear_flops(batch, in_features, out_features):
    everything = []
    while True:
        everything.append(bytes(1 << 28))
