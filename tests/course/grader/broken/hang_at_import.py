# verdict: timeout
# checks: all
# words: while ex03_linear.py was imported
while True:
    pass
