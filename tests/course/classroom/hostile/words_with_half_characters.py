# verdict: error
# checks: test_flops
# words: ValueError
def linear_flops(batch, in_features, out_features):
    print("\ud800 \udfff")
    raise ValueError("half a character: \ud800 \udcff \udfff")
