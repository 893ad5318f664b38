# verdict: error
# checks: test_flops
# words: ValueError
def linear_flops(batch, in_features, out_features):
    error = ValueError("it caused itself")
    group = error
    for _ in range(500):
        group = ExceptionGroup("deep", [group])
    error.__cause__ = error.__context__ = group
    error.add_note("a note " * 100_000)
    raise error
