# verdict: timeout
# checks: test_flops
# words: no answer within
import types


class Endless(Exception):
    frame = types.SimpleNamespace(f_code=types.SimpleNamespace(co_filename="x"), f_locals={})

    def trace(self):
        again = types.SimpleNamespace(tb_frame=self.frame, tb_lineno=1)
        again.tb_next = again
        return again

    __traceback__ = property(trace, lambda self, value: None)


def linear_flops(batch, in_features, out_features):
    raise Endless
