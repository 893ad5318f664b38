# verdict: passed or wrong or error or crashed
# checks: test_flops
# words:
# wall: five thousand files, and a path too long to remove by its name
import os
import tempfile

right = linear_flops


def linear_flops(batch, in_features, out_features):
    if batch > 1:
        return right(batch, in_features, out_features)
    place = os.path.join(tempfile.gettempdir(), "hostile-was-here")
    os.makedirs(place)
    for number in range(5_000):
        open(os.path.join(place, f"{number}\n\x1b[2J"), "w").close()
    os.chdir(place)
    for _ in range(100):
        os.mkdir("x" * 100)
        os.chdir("x" * 100)
    return right(batch, in_features, out_features)
