import math

import torch
from torch import nn


class Linear(nn.Module):
    def __init__(self, in_features, out_features, bias=False):
        super().__init__()
        for name, value in (("in_features", in_features), ("out_features", out_features)):
            if value < 1:
                raise ValueError(f"{name} has to be positive, not {value}")
        self.in_features = in_features
        self.out_features = out_features
        sigma = math.sqrt(2.0 / (in_features + out_features))
        self.weight = nn.Parameter(torch.zeros(out_features, in_features))
        nn.init.trunc_normal_(self.weight, mean=0.0, std=sigma, a=-3.0 * sigma, b=3.0 * sigma)
        if bias:
            self.bias = nn.Parameter(torch.zeros(out_features))
        else:
            self.bias = None

    def forward(self, x):
        if x.size(-1) != self.in_features:
            raise ValueError(f"x: last axis is {x.size(-1)}, but the layer takes {self.in_features}")
        out = torch.matmul(x, self.weight.t())
        if self.bias is not None:
            out = out + self.bias
        return out


def linear_backward(x, weight, grad_out):
    grad_x = torch.matmul(grad_out, weight)
    rows = x.reshape(-1, x.shape[-1])
    grads = grad_out.reshape(-1, grad_out.shape[-1])
    grad_weight = torch.matmul(grads.t(), rows)
    grad_bias = grads.sum(dim=0)
    return grad_x, grad_weight, grad_bias


def linear_flops(batch, in_features, out_features):
    return 2 * batch * in_features * out_features
