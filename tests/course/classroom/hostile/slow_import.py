# verdict: timeout
# checks: all
# words: while ex03_linear.py was imported
import time

time.sleep(60)
