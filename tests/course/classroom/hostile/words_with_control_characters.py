# verdict: error
# checks: test_flops
# words: one two
def linear_flops(batch, in_features, out_features):
    print("\0\1\2\x0b\x0c\x7f\x85\u2028\ufeff\ufffe\uffff")
    raise ValueError("one\0two\x08\x7f\x85\u2028\u2029\ufeff\ufffe\uffff\U000e0041")
