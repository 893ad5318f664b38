"""Where forking is not safe, each process begins here: made ready as the zygote makes those that it forks."""

import importlib
import os
import sys
import threading

from grader.sandbox.zygote import warm


def _end_with_the_front_end() -> None:
    """Pass on what is asked, and end with who asks, whatever a check is busy with."""
    asked, (theirs, ours) = os.dup(0), os.pipe()
    os.dup2(theirs, 0)

    def pass_on() -> None:
        while part := os.read(asked, 1 << 16):
            while part:
                part = part[os.write(ours, part):]
        os._exit(0)
    threading.Thread(target=pass_on, daemon=True).start()


if __name__ == "__main__":
    module, *options = sys.argv[1:]
    _end_with_the_front_end()
    warm()
    importlib.import_module(module).main(limit="--limit" in options)
