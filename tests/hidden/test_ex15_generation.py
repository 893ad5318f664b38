"""Lesson 15 on other shapes, dtypes, models and texts."""

import math

import torch

from grader import dtypes, points, raises
from grader.course.doubles import Elsewhere

SIZES = {"vocab_size": 30, "d_model": 8, "layers": 1, "heads": 2, "d_ff": 10, "max_seq_len": 16}
PROMPTS = [[3], [9, 0, 4, 28], [17, 2]]
KINDS = {
    "learned positions": {"positions": "learned", "norm": "layer", "feed_forward": "mlp"},
    "a window": {"heads": 4, "kv_heads": 2, "windows": (3,)},
    "QK-norm, tied": {"qk_norm": True, "tie_embeddings": True},
}


def _model(impl, draw, **changes):
    return draw.fill(impl.Transformer(impl.ModelConfig(**{**SIZES, **changes})))


def _rng(seed=0):
    return torch.Generator().manual_seed(seed)


class Bytes:
    """One id per byte."""

    def encode(self, text):
        return list(text.encode())

    def decode(self, ids):
        return bytes(ids).decode("utf-8", errors="replace")


@dtypes("float32", "float64", "bfloat16", "float16")
def test_filters_of_any_shape(impl, draw, dtype):
    """Filters take a single row, a transposed batch and a batch of nothing, and keep the dtype."""
    filters = {"top_k": lambda x: impl.top_k(x, 2), "top_p": lambda x: impl.top_p(x, 0.7),
               "min_p": lambda x: impl.min_p(x, 0.3), "temperature": lambda x: impl.apply_temperature(x, 2)}
    eighths = (draw.ints(64, 7, 3).to(draw.float) / 8).to(dtype)     # far apart: no filter is on the edge
    inputs = {"a row": eighths[:, 0], "transposed": eighths.T, "nothing": eighths.T[:0],
              "axes exchanged": (draw.ints(64, 3, 2, 5).to(draw.float) / 8).to(dtype).transpose(0, 1)}
    return {f"{name} of {what}": keep(x) for name, keep in filters.items() for what, x in inputs.items()}


def test_filters_of_one_token(impl, draw):
    """A vocabulary of one token always keeps it."""
    x = draw(3, 1)
    return [impl.top_k(x, 1), impl.top_p(x, 0.01), impl.min_p(x, 1), impl.inverse_cdf(x, draw.uniform(3))]


def test_filters_of_equals(impl, draw):
    """Of 8 equal logits top_p = 0.5 keeps ids 0 to 3, and min_p = 1 keeps all."""
    x = torch.full((2, 8), -3.0, dtype=draw.float, device=draw.device)
    return [impl.top_p(x, 0.5), impl.top_p(x, 0.51), impl.min_p(x, 1), impl.top_k(x, 8)]


def test_filters_pass_gradients(impl, draw):
    """Gradients flow to the logits that stay."""
    said = {}
    for name, keep in {"top_k": lambda x: impl.top_k(x, 3), "top_p": lambda x: impl.top_p(x, 0.6),
                       "penalty": lambda x: impl.repetition_penalty(x, [[1], [2, 2]], 1.5),
                       "temperature": lambda x: impl.apply_temperature(x, 0.3)}.items():
        x = draw(2, 6).requires_grad_()
        y = keep(x)
        (y.masked_fill(y == -math.inf, 0) * draw(2, 6)).sum().backward()
        said[name] = x.grad
    return said


def test_penalty_of_what_is_gone(impl, draw):
    """−inf and 0 stay what they are under any penalty, and the order of ids does not matter."""
    x = draw(2, 6)
    x = torch.cat([x, x.new_tensor([[-math.inf, 0.0]] * 2)], dim=-1)
    return [impl.repetition_penalty(x, [[6, 7, 0], [0, 7, 6, 0]], p) for p in (2, 0.5)]


def test_sample_many(impl, draw):
    """Sampling from half precision, and from no rows at all, is sampling in float64."""
    rng, logits = _rng(3), draw(200, 11)
    return {"bfloat16": impl.sample(logits.to(torch.bfloat16), rng),
            "nothing": impl.sample(logits[:0], rng),
            "logits far from 0": impl.sample(logits - 5000, rng)}


def test_choose_in_half_precision(impl, draw):
    """choose computes in float32 when the logits are float16, where 60,000 / 0.5 would be ∞."""
    x = (draw.ints(50, 9, 6).to(draw.float) * 1000).to(torch.float16)
    return impl.Sampling(temperature=0.01, min_p=0.1).choose(x, [[]] * 9, draw.uniform(9))


@points(2)
def test_generate_with_other_models(impl, draw):
    """Learned positions, windows and QK-norm: a padded batch says what its rows say alone."""
    said = {}
    for name, kind in KINDS.items():
        model = _model(impl, draw, **kind)
        said[name] = [impl.generate(model, PROMPTS, 4, temperature=0, use_cache=use_cache)
                      for use_cache in (True, False)]
    return said


@dtypes("float64", "float16")
def test_generate_in_other_dtypes(impl, draw, dtype):
    """Caches are made in the model's dtype."""
    model = _model(impl, draw).to(dtype)
    return [len(row) for row in impl.generate(model, PROMPTS, 3, rng=_rng())]


def test_generate_without_an_rng(impl, draw):
    """Without an rng the numbers come from torch's own generator; the same seed, the same text."""
    model = _model(impl, draw)
    torch.manual_seed(draw.seed)
    return [impl.generate(model, PROMPTS, 4, temperature=1.3) for _ in range(2)]


def test_generate_lengths(impl, draw):
    """0 new tokens are no tokens, a negative number is refused, and max_seq_len may be filled."""
    model = _model(impl, draw)
    return {"none": impl.generate(model, PROMPTS, 0),
            "negative": raises(ValueError, lambda: impl.generate(model, PROMPTS, -1), names="max_new_tokens"),
            "full": impl.generate(model, [[1] * 14, [2]], 2, temperature=0)}


def test_generate_stops_at_once(impl, draw):
    """All tokens are stop tokens: nothing comes, after one forward pass; the mode is put back."""
    model, passes = _model(impl, draw).train(), []
    model.register_forward_hook(lambda *passed: passes.append(1))
    said = impl.generate(model, PROMPTS, 5, stop=set(range(30)), rng=_rng())
    return {"new ids": said, "passes": len(passes), "training": model.training}


def test_decode_steps(impl, draw):
    """decode_steps gives a list per step, with None for rows that have stopped."""
    model = _model(impl, draw)
    steps = list(impl.decode_steps(model, PROMPTS, 4, impl.Sampling(), (), _rng()))
    stop = [steps[1][0], steps[2][2]]
    return {"all": steps, "stopped": list(impl.decode_steps(model, PROMPTS, 4, impl.Sampling(), stop, _rng()))}


def test_gradients_stay_on_between_steps(impl, draw):
    """Who reads a stream step by step may compute gradients between two steps."""
    model, x = _model(impl, draw), draw(3).requires_grad_()
    steps = impl.decode_steps(model, PROMPTS, 2, impl.Sampling(temperature=0))
    next(steps)
    return {"requires grad": (2 * x).requires_grad, "next": next(steps)}


def test_text_of_every_script(impl, draw):
    """Byte by byte, any text comes out character by character."""
    codec, text = Bytes(), draw.text(60) + "👩‍🚀é\u0301 हिन्दी"
    pieces = list(impl.text_pieces(codec, codec.encode(text)))
    return {"whole": "".join(pieces) == text, "pieces": pieces}


def test_text_of_random_bytes(impl, draw):
    """Joined, the pieces of any bytes are their decoded text."""
    rows = (draw.ints(128, 20, 12) + 128).tolist()
    return ["".join(impl.text_pieces(Bytes(), row)) for row in rows]


def test_stream_stops(impl, draw):
    """stream ends before a stop token, and gives out what it held back."""
    codec, model = Bytes(), _model(impl, draw, vocab_size=256)
    new, = impl.generate(model, [codec.encode("a b")], 8, rng=_rng(5))
    pieces = list(impl.stream(model, codec, "a b", 8, stop=[new[5]], rng=_rng(5)))
    return {"text": "".join(pieces), "no empty piece": all(pieces)}


def test_stream_refuses(impl, draw):
    """An empty prompt and a bad setting are ValueErrors, with the first piece at the latest."""
    codec, model = Bytes(), _model(impl, draw, vocab_size=256)
    return {"prompt": raises(ValueError, lambda: list(impl.stream(model, codec, "", 3)), names="prompt"),
            "top_p": raises(ValueError, lambda: list(impl.stream(model, codec, "a", 3, top_p=0)), names="top_p")}


def test_abandoned_stream(impl, draw):
    """A stream that nobody reads to its end puts the mode back too."""
    codec, model = Bytes(), _model(impl, draw, vocab_size=256).train()
    pieces = impl.stream(model, codec, "a b", 8, rng=_rng(5))
    next(pieces)
    pieces.close()
    return model.training


def test_left_pad_device(impl, draw):
    """left_pad makes all three of its tensors on the device that is asked for."""
    with Elsewhere() as there:
        made = impl.left_pad([[3, 1], [2]], there.device)
        return {name: tensor.device.type for name, tensor in zip(("tokens", "positions", "real"), made)}
