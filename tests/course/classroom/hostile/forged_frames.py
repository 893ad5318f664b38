# verdict: error
# checks: test_flops
# words: ZeroDivisionError
import os
import tempfile

import grader.sandbox.worker

write = grader.sandbox.worker.write_frame
folder = tempfile.mkdtemp()
os.mkfifo(f"{folder}/ex03_linear.py")       # who opens it waits for ever


def forge(stream, header, body=b""):
    if "raised" in header:
        files = ["/etc/passwd", f"{folder}/ex03_linear.py", os.path.dirname(__file__) + "/../../../etc/passwd"]
        header["frames"] += [{"file": file, "line": 1, "function": "f"} for file in files]
    write(stream, header, body)


grader.sandbox.worker.write_frame = forge


def linear_flops(batch, in_features, out_features):
    return 1 / 0
