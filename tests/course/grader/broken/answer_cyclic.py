# verdict: wrong
# checks: test_backward_bias
# words: contains itself
cycle = []
cycle.append(cycle)


_right = linear_backward


def linear_backward(x, weight, grad_out):
    a, b, c = _right(x, weight, grad_out)
    return a, b, cycle
