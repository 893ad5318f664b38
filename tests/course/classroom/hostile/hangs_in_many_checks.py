# verdict: timeout
# checks: test_merge
# words: no answer within
# chapter: 00
def merge_heads(x):
    while True:
        pass
