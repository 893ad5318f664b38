# verdict: forbidden
# checks: test_forward
# words: torch.nn.Linear
def another():
    from torch.nn.modules.linear import Linear as Borrowed
    return Borrowed


class Linear(another()):
    def __init__(self, in_features, out_features, bias=False):
        super().__init__(in_features, out_features, bias)
