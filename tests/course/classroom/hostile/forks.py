# verdict: wrong or crashed
# checks: test_flops
# words:
# wall: each child may take as much as its parent
import os

right = linear_flops


def linear_flops(batch, in_features, out_features):
    try:
        child = os.fork()
    except OSError:
        return 0
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return right(batch, in_features, out_features)
