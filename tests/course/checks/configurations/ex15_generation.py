"""What the parts of chapter 15 may be given."""

import torch
from hypothesis import strategies as st
from reference import ex13_transformer

from tests.course.checks.configurations.ex13_transformer import a_config

P = (0.5, 1.0, 0.9, 0.1, 1e-3, 0.999)


def logits_of(draw, axes="*batch vocab"):
    return draw.tensor("logits", axes, holes=True)


def filters(impl, draw):
    logits = logits_of(draw)
    draw.asked(impl.apply_temperature, logits, draw("temperature", (1.0, 0.5, 100.0, 1e-3)))
    draw.asked(impl.top_k, logits, draw("k", (1, 2, 3, 100)))
    draw.asked(impl.top_p, logits, draw("p", P))
    draw.asked(impl.min_p, logits, draw("min_p", (*P, 0.0)))


def repetition_penalty(impl, draw):
    logits = logits_of(draw, "batch vocab")
    if (logits == 0).any():     # which stays 0, with the one slope or the other
        logits = logits.detach()
    ids = [draw("ids", st.lists(st.integers(0, max(0, logits.shape[1] - 1)), max_size=4)) for _ in range(len(logits))]
    draw.asked(impl.repetition_penalty, logits, ids, draw("penalty", (1.3, 1.0, 0.5, 1e-3)))


def inverse_cdf(impl, draw):
    logits = logits_of(draw)
    u = draw.tensor("u", tuple(logits.shape[:-1]), kinds=("normal",), grad=False).abs() % 1
    draw.asked(
        impl.inverse_cdf,
        logits,
        draw("all of u", (None, 0.0, 0.5, 1 - 2**-53)) and torch.full_like(u, 0.5).double() or u,
    )
    draw.asked(
        impl.inverse_cdf, logits, torch.full(u.shape, draw("u", (0.0, 0.5, 0.25, 1 - 2**-53)), dtype=torch.float64)
    )


def sample(impl, draw):
    logits = logits_of(draw)
    rng = torch.Generator().manual_seed(draw("seed", (0, 1, 2)))
    draw.see("ids", impl.sample(logits, rng))
    draw.see("rng", rng.get_state())
    draw.asked(impl.sample, logits)


def settings_of(draw):
    found = {}
    for name, values in {
        "temperature": (1.0, 0.0, 0.5, 0),
        "top_k": (1, 2, None),
        "top_p": (0.5, 0.9, 1.0, None),
        "min_p": (0.1, 1.0, 0.0, None),
        "repetition_penalty": (1.5, 0.5),
    }.items():
        if draw(f"with {name}", (False, True)):
            found[name] = draw(name, values)
    return found


def choose(impl, draw):
    logits, settings = logits_of(draw, "batch vocab"), settings_of(draw)
    ids = [draw("ids", st.lists(st.integers(0, max(0, logits.shape[1] - 1)), max_size=4)) for _ in range(len(logits))]
    u = draw.tensor("u", (len(logits),), kinds=("normal",), grad=False).abs() % 1
    draw.asked(impl.Sampling(**settings).choose, logits, ids, u)


def left_pad(impl, draw):
    draw.asked(
        impl.left_pad,
        draw("ids", st.lists(st.lists(st.integers(0, 9), min_size=0, max_size=4), min_size=1, max_size=4)),
    )


def decoding(impl, draw):
    config, dtype = (
        a_config(ex13_transformer, draw, "pre"),
        draw("dtype", (torch.float32, torch.float32, torch.bfloat16)),
    )
    model = draw.module(ex13_transformer.Transformer, config, dtype=dtype)
    within = draw("one part trains", (False, True))
    model.blocks[0].train(within)
    ids = draw(
        "ids", st.lists(st.lists(st.integers(0, config.vocab_size - 1), min_size=1, max_size=4), min_size=1, max_size=3)
    )
    stop, seed = draw("stop", st.lists(st.integers(0, config.vocab_size - 1), max_size=2)), draw("seed", (0, 1, None))
    new, settings = draw("max_new_tokens", (1, 2, 3, 5, 0)), settings_of(draw)
    rng = None if seed is None else torch.Generator().manual_seed(seed)
    use_cache = draw("use_cache", (True, False))
    seen, grads = [], []
    model.register_forward_hook(
        lambda module, args, out: (
            (seen.append([tuple(args[0].shape), module.training]), grads.append(torch.is_grad_enabled())) and None
        )
    )
    steps = impl.decode_steps(
        model,
        ids,
        new,
        impl.Sampling(**settings),
        iter(stop) if draw("stop once", (False, True)) else stop,
        rng,
        use_cache,
    )
    after = draw("stops reading after", (99, 1, 0, 2))
    found = []
    for _ in range(after):
        step = next(steps, "end")
        found.append(step)
        if step == "end":
            break
    steps.close()
    draw.see("steps", found)
    draw.see("passes", [seen, grads])
    draw.see("afterwards", [ids, model, rng and rng.get_state()])
    rng = None if seed is None else torch.Generator().manual_seed(seed)
    torch.default_generator.manual_seed(1)
    draw.see("generated", impl.generate(model, ids, new, stop, rng, use_cache, **settings))
    draw.see("modes", [part.training for part in model.modules()])


class Letters:
    """Ids are bytes: some are half a character."""

    def __init__(self, vocab):
        self.table = [bytes([b]) for b in b"ab \xf0\x9f\x98\x80\xc3\xa9\xe2\x82"][:vocab] or [b"a"]

    def encode(self, text):
        return [n % len(self.table) for n in text.encode()]

    def decode(self, ids):
        return b"".join(self.table[id] for id in ids).decode("utf-8", errors="replace")


def pieces(impl, draw):
    ids = draw("ids", st.lists(st.integers(0, 10), max_size=9))
    draw.asked(impl.text_pieces, Letters(99), ids)
    reads = []

    def given():
        for id in ids:
            reads.append(id)
            yield id

    draw.see(
        "pieces, and after how many ids", [(piece, len(reads)) for piece in impl.text_pieces(Letters(99), given())]
    )


def stream(impl, draw):
    config = a_config(ex13_transformer, draw, "pre")
    model = draw.module(ex13_transformer.Transformer, config, dtype=torch.float32)
    given = settings_of(draw)
    if draw("with stop", (False, True)):
        given["stop"] = draw("stop", st.lists(st.integers(0, config.vocab_size - 1), max_size=2))
    if draw("with rng", (False, True)):
        given["rng"] = torch.Generator().manual_seed(3)
    if draw("says use_cache", (False, True)):
        given["use_cache"] = draw("use_cache", (False, True))
    draw.see(
        "text",
        list(
            impl.stream(
                model,
                Letters(config.vocab_size),
                draw("prompt", ("a", "ab", "a b")),
                draw("new", (1, 3, 6, 0)),
                **given,
            )
        ),
    )
