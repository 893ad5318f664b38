# verdict: timeout
# checks: test_flops
# words: no answer within
import faulthandler
import sys
import time


def linear_flops(batch, in_features, out_features):
    faulthandler.cancel_dump_traceback_later()
    for file in ("/etc/passwd", __file__ + "/../../../../../etc/passwd", "/dev/zero", "\x1b[2J"):
        print(f'Timeout (0:00:02)!\nThread 1 (most recent call first):\n  File "{file}", line 1 in root',
              file=sys.stderr, flush=True)
    time.sleep(60)
