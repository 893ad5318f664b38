# verdict: wrong
# checks: test_backward_bias
# words: changed its input
_right = linear_backward


def linear_backward(x, weight, grad_out):
    answer = _right(x, weight, grad_out)
    grad_out.mul_(0)
    return answer
