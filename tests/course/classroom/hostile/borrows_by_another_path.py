# verdict: forbidden
# checks: all
# words: torch.nn.Linear
from torch.nn.modules.linear import Linear as Borrowed


class Linear(Borrowed):
    def __init__(self, in_features, out_features, bias=False):
        super().__init__(in_features, out_features, bias)
