import torch
from einops import einsum, rearrange
from torch import nn


def _positive(**sizes):
    for name, size in sizes.items():
        if size <= 0:
            raise ValueError(f"{name}={size}, must be > 0")


class Linear(nn.Module):
    def __init__(self, in_features, out_features, bias=False):
        super().__init__()
        _positive(in_features=in_features, out_features=out_features)
        s = (2 / (in_features + out_features)) ** 0.5
        self.weight = nn.Parameter(
            nn.init.trunc_normal_(torch.empty((out_features, in_features)), 0, s, -3 * s, 3 * s)
        )
        self.register_parameter("bias", nn.Parameter(torch.zeros(out_features)) if bias else None)

    def forward(self, x):
        d_out, d_in = self.weight.shape
        if x.shape[-1] != d_in:
            raise ValueError(f"expected x to have {d_in} features but it has shape {tuple(x.shape)}")
        y = einsum(x, self.weight, "... i, o i -> ... o")
        return y + self.bias if self.bias is not None else y


def linear_backward(x, weight, grad_out):
    x2, g2 = rearrange(x, "... i -> (...) i"), rearrange(grad_out, "... o -> (...) o")
    return (
        einsum(grad_out, weight, "... o, o i -> ... i"),
        einsum(g2, x2, "n o, n i -> o i"),
        g2.sum(0),
    )


def linear_flops(batch, in_features, out_features):
    macs = batch * out_features * in_features
    return macs * 2
