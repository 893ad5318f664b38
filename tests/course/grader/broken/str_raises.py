# verdict: error
# checks: test_flops
# words: __str__ raised
class Rude(Exception):
    def __str__(self):
        raise ValueError("no")


def linear_flops(batch, in_features, out_features):
    raise Rude
