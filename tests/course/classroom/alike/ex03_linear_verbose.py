import math

import torch
import torch.nn as nn


class Linear(nn.Module):
    def __init__(self, in_features: int, out_features: int, bias: bool = False):
        super().__init__()

        # check the sizes before anything is made
        if not in_features >= 1:
            raise ValueError("in_features must be >= 1 (got %d)" % in_features)
        if not out_features >= 1:
            raise ValueError("out_features must be >= 1 (got %d)" % out_features)

        variance = 2 / (in_features + out_features)
        std = math.sqrt(variance)
        limit = 3 * std

        W = torch.empty(out_features, in_features)
        with torch.no_grad():
            W.normal_(0, std)
            while True:
                too_far = W.abs() > limit
                if not too_far.any():
                    break
                W[too_far] = torch.randn(int(too_far.sum())) * std
        self.weight = nn.Parameter(W)

        self.bias = None
        if bias:
            self.bias = nn.Parameter(torch.zeros(out_features))

    def forward(self, x):
        features = x.shape[-1]
        expected = self.weight.shape[-1]
        if features != expected:
            raise ValueError("the last dimension of x is %d, should be %d" % (features, expected))
        result = x @ self.weight.transpose(0, 1)
        if self.bias is None:
            return result
        result = result + self.bias
        return result


def linear_backward(x, weight, grad_out):
    # dL/dx
    grad_x = grad_out @ weight

    # dL/dW: sum of outer products over every position
    batch_axes = list(range(grad_out.dim() - 1))
    outer = grad_out.unsqueeze(-1) * x.unsqueeze(-2)
    grad_weight = outer.sum(dim=batch_axes) if batch_axes else outer

    # dL/db
    grad_bias = grad_out.sum(dim=batch_axes) if batch_axes else grad_out.clone()

    return grad_x, grad_weight, grad_bias


def linear_flops(batch, in_features, out_features):
    multiplications = batch * in_features * out_features
    additions = batch * in_features * out_features
    return multiplications + additions
