# verdict: error
# checks: all
# words: UTF-8
name = 'é'
