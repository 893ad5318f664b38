# verdict: wrong
# checks: test_parameters
# words: not expected
class Coloured(Linear):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.register_parameter("\x1b[2J\x1b[32mpassed\r\n\0\u202e", nn.Parameter(torch.zeros(1)))


Linear = Coloured
