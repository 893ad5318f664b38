# verdict: wrong
# checks: test_flops
# words: a coroutine
async def linear_flops(batch, in_features, out_features):
    return 2 * batch * in_features * out_features
