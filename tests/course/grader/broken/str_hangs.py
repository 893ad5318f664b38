# verdict: timeout
# checks: test_flops
# words: no answer within
class Slow(Exception):
    def __str__(self):
        while True:
            pass


def linear_flops(batch, in_features, out_features):
    raise Slow
