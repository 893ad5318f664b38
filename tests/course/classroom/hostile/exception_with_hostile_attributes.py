# verdict: error or crashed
# checks: test_flops
# words:
class Rude(AttributeError):
    obj = property(lambda self: self.nothing())
    name = property(lambda self: 1 / 0)

    def __str__(self):
        return Text("x")


class Text(str):
    def __contains__(self, part):
        raise SystemExit("passed")

    __len__ = __getitem__ = __contains__


Rude.__name__ = "AttributeError"


def linear_flops(batch, in_features, out_features):
    raise Rude
