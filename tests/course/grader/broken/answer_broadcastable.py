# verdict: wrong
# checks: test_backward_bias
# words: your shape is (1, 4), expected (4,)


_right = linear_backward


def linear_backward(x, weight, grad_out):
    a, b, c = _right(x, weight, grad_out)
    return a, b, c[None]
