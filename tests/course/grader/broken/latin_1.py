# verdict: error
# checks: all
# words: utf-8
name = 'é'
