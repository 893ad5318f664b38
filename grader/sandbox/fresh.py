"""Where forking is not safe, each process begins here: made ready as the zygote makes those that it forks."""

import importlib
import sys

from grader.sandbox.zygote import warm

if __name__ == "__main__":
    module, *options = sys.argv[1:]
    warm()
    importlib.import_module(module).main(limit="--limit" in options)
