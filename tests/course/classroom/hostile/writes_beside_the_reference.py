# verdict: wrong or crashed
# checks: test_flops
# words:
# wall: a worse reference makes a worse answer right
from pathlib import Path

import grader

right, root = linear_flops, Path(grader.__file__).parents[1]


def linear_flops(batch, in_features, out_features):
    """It opens files to append, and appends nothing; new ones it leaves."""
    opened = 0
    for file in ("solutions/ex03_linear.py", "tests/test_ex03_linear.py", "grader/compare.py", "exercises/__init__.py"):
        try:
            open(root / file, "ab").close()
            opened += 1
            (root / file).with_name("hostile-was-here.py").write_text("")
        except OSError:
            continue
    return right(batch, in_features, out_features) if opened else 0
