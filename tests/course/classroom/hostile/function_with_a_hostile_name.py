# verdict: error
# checks: test_flops
# words: ZeroDivisionError
def linear_flops(batch, in_features, out_features):
    return 1 / 0


name = "</pre><script>alert(1)</script>\x1b[2J\n\n\u202e" + "x" * 100_000
linear_flops.__code__ = linear_flops.__code__.replace(co_name=name, co_qualname=name)
