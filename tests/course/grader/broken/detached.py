# verdict: wrong
# checks: test_forward_bias
# words: detached
import torch

_right = Linear.forward


def forward(self, x):
    return _right(self, x).detach()


Linear.forward = forward
