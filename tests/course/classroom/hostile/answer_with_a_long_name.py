# verdict: wrong
# checks: test_parameters
# words: not expected: xxxxxxxx
class LongNamed(Linear):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.register_parameter("x" * 8_000_000, nn.Parameter(torch.zeros(1)))


Linear = LongNamed
