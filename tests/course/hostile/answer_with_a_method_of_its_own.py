# verdict: wrong
# checks: test_backward_bias
# words: differ
right = linear_backward


def linear_backward(x, weight, grad_out):
    answer = right(x, weight, grad_out)
    answer[2].detach = lambda: torch.zeros(1 << 20)     # asked for its numbers, it gives others, and more
    return answer
