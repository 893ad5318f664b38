# verdict: error
# checks: test_flops
# words: linear_flops is missing from ex03_linear.py
del linear_flops
