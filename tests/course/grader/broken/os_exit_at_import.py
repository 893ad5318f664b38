# verdict: crashed
# checks: all
# words: exit code 0
import os

os._exit(0)
