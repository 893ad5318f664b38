# verdict: wrong or error or crashed
# checks: test_flops
# words:
# wall: root may raise its limits
import resource

right = linear_flops


def linear_flops(batch, in_features, out_features):
    if batch > 1:
        return right(batch, in_features, out_features)
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        torch.empty(5 << 28)      # 5 GB
        return right(batch, in_features, out_features)
    except (OSError, ValueError, RuntimeError, MemoryError):
        return 0
