# verdict: wrong
# checks: test_parameters
# words: not expected: <img src=x onerror=alert(1)>
class Marked(Linear):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.register_parameter("<img src=x onerror=alert(1)>", nn.Parameter(torch.zeros(1)))


Linear = Marked
