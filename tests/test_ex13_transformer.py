"""What lesson 13 asks of the whole model: Transformer, its caches and counts, EncoderDecoder."""

import torch

from grader import accepts, points, raises, shape, shapes, tolerance

FORBIDDEN = dict.fromkeys(("make_block", "Transformer", "EncoderDecoder"), {
    "torch.nn.Transformer", "torch.nn.TransformerEncoder", "torch.nn.TransformerEncoderLayer",
    "torch.nn.TransformerDecoder", "torch.nn.TransformerDecoderLayer", "torch.nn.MultiheadAttention",
    "torch.nn.functional.multi_head_attention_forward"})

# Five kinds of model, as small as they can be and still show every difference.
SIZES = {"vocab_size": 11, "d_model": 8, "layers": 2, "heads": 2, "d_ff": 12, "max_seq_len": 16}
BIASES = {"qkv_bias": True, "o_bias": True, "mlp_bias": True}
GPT2 = {"norm": "layer", "feed_forward": "mlp", "activation": "gelu_tanh", "positions": "learned",
        "tie_embeddings": True, **BIASES}
LLAMA = {"heads": 4, "kv_heads": 2}
QWEN3 = {"heads": 4, "kv_heads": 2, "head_dim": 6, "qk_norm": True, "norm_eps": 0.1,
         "tie_embeddings": True}
ENCODER = {**GPT2, "norm_position": "post", "activation": "gelu", "causal": False}
SINUSOIDAL = {**ENCODER, "positions": "sinusoidal", "activation": "relu", "causal": True}
KINDS = {"GPT-2": GPT2, "Llama": LLAMA, "Qwen3": QWEN3, "an encoder": ENCODER, "2017": SINUSOIDAL}


def _config(impl, kind, **changes):
    return impl.ModelConfig(**{**SIZES, **kind, **changes})


def _drawn(impl, draw, kind, **changes):
    """A config of this kind whose sizes are drawn."""
    names = ("vocab_size", "d_ff", "max_seq_len")
    sizes = {name: int(n) + 5 for name, n in zip(names, draw.ints(16, 3))}
    sizes |= {"d_model": 8 * int(draw.ints(4)) + 8, "layers": 2 + int(draw.ints(3))}
    return _config(impl, kind, **{**sizes, **changes})


def _model(impl, draw, kind, **changes):
    return draw.fill(impl.Transformer(_config(impl, kind, **changes))).eval()


def _shapes(module):
    return shapes(module.state_dict())


def _input_of(block, call):
    """What `call` hands to the block as x."""
    seen = []
    hook = block.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(args[0] if args else kwargs["x"]), with_kwargs=True)
    call()
    hook.remove()
    return seen[0]


def _real(draw, *lengths, seq):
    """Which tokens of a batch padded on the left are real, (batch, seq), and their positions."""
    padding = seq - torch.tensor(lengths, device=draw.device)[:, None]
    places = torch.arange(seq, device=draw.device)
    return places >= padding, (places - padding).clamp(min=0)


# -- a block

@points(2)
def test_block_parts(impl, draw):
    """make_block gives the parts that the config names: norms, attention, MLP or SwiGLU, biases.

    Hand each part its own fields: kv_heads, head_dim, qk_norm, qkv_bias and o_bias to attention,
    mlp_bias to the MLP.
    """
    said = {}
    for name, kind in KINDS.items():
        config = _drawn(impl, draw, kind)
        said[name] = _shapes(impl.make_block(config, 0, impl.make_rope(config)))
    return said


@points(2)
def test_block_forward(impl, draw):
    """A block computes what its config says: which norm with which eps, which activation.

    norm_eps goes to both norms and to attention (for QK-norm); activation goes to the MLP.
    """
    x, said = draw(2, 5, 8), {}
    for name, kind in KINDS.items():
        config = _config(impl, kind, norm_eps=0.1)
        said[name] = draw.fill(impl.make_block(config, 0, impl.make_rope(config)))(x)
    return said


def test_block_norms_are_two(impl, draw):
    """norm1 and norm2 are two modules with weights of their own.

    Each is made by a call of its own. The answers are how many different parameters there are, and how many numbers
    in them.
    """
    parameters = list(impl.make_block(_drawn(impl, draw, LLAMA), 0, None).parameters())
    return {"parameters": len(parameters), "numbers": sum(p.numel() for p in parameters)}


def test_block_window(impl, draw):
    """Each layer has its own window, and without one a token sees all before it.

    config.window(layer) says which. Here layer 0 sees everything, layer 1 two tokens.
    """
    config, x = _config(impl, LLAMA, windows=(None, 2)), draw(1, 6, 8)
    rope = impl.make_rope(config)
    return {f"layer {layer}": draw.fill(impl.make_block(config, layer, rope))(x) for layer in (0, 1)}


def test_block_dropout(impl, draw):
    """A block's dropout falls on what its sublayers add to the stream.

    PreNormBlock and PostNormBlock take it as an argument. At 0.5, half of what attention adds and
    half of what the MLP adds is lost; in eval mode nothing is. The MLP in a PreNormBlock has none.
    """
    block = draw.fill(impl.make_block(_config(impl, GPT2, dropout=0.5), 0, None))
    x = draw(4, 10, 8)
    return {"some of x passes unchanged": bool((block(x) == x).any()),
            "the MLP alone, twice the same": bool((block.feed_forward(x) == block.feed_forward(x)).all()),
            "in eval mode": block.eval()(x)}


# -- the model

@points(2)
def test_state_dict(impl, draw):
    """The state dict has embedding, positions, blocks.N, norm and unembedding, as the config says.

    positions only where they are learned; norm only after pre-norm blocks. An attribute set to
    None leaves no trace in the state dict. nn.ModuleList counts the blocks.
    """
    return {name: _shapes(impl.Transformer(_drawn(impl, draw, kind))) for name, kind in KINDS.items()}


@points(3)
def test_llama(impl, draw):
    """Llama's logits: embedding, pre-norm blocks with RoPE, one last norm, unembedding.

    The blocks do nearly everything. After the last of them the stream goes through self.norm,
    once, and through self.unembedding. In training mode, at a second call and without gradients it is the same.
    """
    model = _model(impl, draw, LLAMA)
    said = {"seven tokens": model(draw.ints(11, 2, 7)), "then one": model(draw.ints(11, 2, 1))}
    with torch.no_grad():
        return {**said, "in training mode, no_grad": model.train()(draw.ints(11, 1, 9))}


@points(3)
def test_gpt2(impl, draw):
    """GPT-2's logits: learned positions are added to the embeddings before the first block.

    Positions 0 … seq − 1, looked up in self.positions, and added as they are; in training mode too, and anew in
    every call.
    """
    model = _model(impl, draw, GPT2)
    return {"seven tokens": model(draw.ints(11, 2, 7)), "then four": model(draw.ints(11, 2, 4)),
            "in training mode": model.train()(draw.ints(11, 2, 4))}


@points(2)
def test_qwen3(impl, draw):
    """Qwen3's logits: Llama's, with QK-norm and heads · head_dim larger than d_model.

    If Llama's are right, look at what make_block hands to attention.
    """
    return _model(impl, draw, QWEN3)(draw.ints(11, 2, 7))


@points(2)
def test_encoder(impl, draw):
    """An encoder's logits: post-norm blocks in which every token sees all, and no norm after them.

    config.causal is False here, so the model makes no mask of its own. A given one hides padding.
    """
    model, ids = _model(impl, draw, ENCODER), draw.ints(11, 2, 7)
    real, _ = _real(draw, 7, 4, seq=7)
    return {"all tokens": model(ids), "without padding": model(ids, mask=real[:, None, None])}


@points(2)
def test_causal_post_norm(impl, draw):
    """With causal=True post-norm blocks see the past alone, ANDed with the mask that is given.

    PostNormBlock makes no mask. Make causal_mask(seq) in the model's forward, on the ids' device.
    """
    model, ids = _model(impl, draw, SINUSOIDAL), draw.ints(11, 2, 7)
    real, _ = _real(draw, 7, 4, seq=7)
    mask = real[:, None, None].expand(2, 2, 7, 7).clone()
    said = {"no mask given": model(ids), "and a mask": model(ids, mask=real[:, None, None]),
            "a mask for all heads and tokens": model(ids, mask=mask), "which stays as it was": mask.clone()}
    return {**said, "then four tokens, in training mode": model.train()(ids[:, :4])}


def test_sinusoidal_start(impl, draw):
    """With sinusoidal positions the stream starts as embedding · √d_model + sinusoid.

    Only the embeddings are multiplied, and only with sinusoidal positions. The answer is what the
    first block is given.
    """
    model, ids = _model(impl, draw, SINUSOIDAL), draw.ints(11, 2, 7)
    return _input_of(model.blocks[0], lambda: model(ids))


def test_causal_flag(impl, draw):
    """causal=False lets every token see the later ones, causal=True does not, pre-norm too.

    Hand config.causal to attention. The answers are the first logits, and whether they change with the last token.
    """
    ids = draw.ints(11, 1, 6)
    other = torch.cat([ids[:, :-1], (ids[:, -1:] + 1) % 11], 1)
    said = {}
    for name, kind in (("Llama", LLAMA), ("an encoder", ENCODER)):
        for causal in (True, False):
            model = _model(impl, draw, kind, causal=causal, layers=1)
            first = model(ids)[:, 0]
            said[f"{name}, causal={causal}"] = bool((first - model(other)[:, 0]).abs().max() > 1e-4)
            said[f"{name}, causal={causal}, the first logits"] = first
    return said


@points(2)
def test_left_padding(impl, draw):
    """A mask hides padding in every layer, and positions say where each row's tokens stand.

    Both go to every block. The answers are the logits of the tokens that are real.
    """
    real, positions = _real(draw, 7, 3, seq=7)
    ids, said = draw.ints(11, 2, 7), {}
    for name, kind in (("Llama", LLAMA), ("GPT-2", GPT2)):
        logits = _model(impl, draw, kind)(ids, mask=real[:, None, None], positions=positions)
        said[name] = logits[real]
    return said


def test_dropout_on_embeddings(impl, draw):
    """While training, dropout falls on the embeddings with their positions; in eval mode nothing.

    On the sum of both, so the positions are added first. The answers say whether what the first block is given has
    zeros in it, or places where only the position is left; in eval mode, what it is.
    """
    model, ids = draw.fill(impl.Transformer(_config(impl, GPT2, dropout=0.5))), draw.ints(11, 4, 9)
    x, alone = (_input_of(model.blocks[0], lambda: model(ids)),
                model.positions(torch.arange(9, device=draw.device)))
    return {"zeros": bool((x == 0).any()), "the position alone": bool((x == alone).any()),
            "in eval mode": _input_of(model.eval().blocks[0], lambda: model(ids))}


# -- parameters

@points(2)
def test_tied_embeddings(impl, draw):
    """tie_embeddings makes embedding and unembedding one parameter; otherwise they are two.

    Unembedding has a method for it. A copy of the numbers would drift apart in training.
    """
    said = {}
    for tied in (True, False):
        model = impl.Transformer(_drawn(impl, draw, LLAMA, tie_embeddings=tied))
        said[f"tie_embeddings={tied}"] = model.unembedding.weight is model.embedding.weight
        said[f"tie_embeddings={tied}, numbers"] = sum(p.numel() for p in model.parameters())
    return said


def test_layers_have_their_own_weights(impl, draw):
    """Every layer is a module of its own; of RoPE, which has no weights, one serves them all.

    [block] * layers is one block, listed several times. Call make_block once per layer, and
    make_rope once.
    """
    model = impl.Transformer(_drawn(impl, draw, LLAMA, layers=3))
    ropes = [module for module in model.modules() if isinstance(module, impl.RoPE)]     # each once
    return {"parameters": sum(parameter.numel() for parameter in model.parameters()),
            "RoPEs": len(ropes)}


@points(2)
@tolerance(0.06)
def test_initialization(impl, draw):
    """Linear weights start with σ = 0.02; in pre-norm blocks o_proj and down are divided by √(2L).

    Draw every Linear's weight anew; then scaled_residual_init, only where the config is pre-norm.
    The answers are the spreads over all layers, times 100.
    """
    said = {}
    for name, kind in (("Llama", LLAMA), ("an encoder", ENCODER)):
        model = impl.Transformer(_config(impl, kind, d_model=64, head_dim=None, d_ff=64))
        for part in ("q_proj", "o_proj", "up", "down"):
            weights = [p for n, p in model.named_parameters() if n.endswith(f"{part}.weight")]
            said[f"{name}, {part}"] = 100 * torch.cat([w.flatten() for w in weights]).std()
    return said


@points(2)
def test_gradients(impl, draw):
    """Gradients reach every parameter, and a tied matrix gets both of its uses' gradients.

    A .data, .detach() or torch.no_grad() on the way cuts them off.
    """
    ids, pull = draw.ints(11, 2, 5), draw(2, 5, 11)
    said = {}
    for name, kind in (("GPT-2", GPT2), ("Qwen3", QWEN3)):
        model = _model(impl, draw, kind, layers=1)
        (model(ids) * pull).sum().backward()
        said |= {f"{name}, grad of {n}": p.grad for n, p in model.named_parameters(remove_duplicate=False)
                 if not n.endswith("k_proj.bias")}      # softmax cancels it: 0, but for rounding
    return said


# -- caches

@points(2)
def test_make_caches(impl, draw):
    """make_caches gives each layer a cache of its own: rolling for a window, else of capacity.

    (batch, kv_heads, capacity or window, head_dim), in the dtype and on the device that are asked for. A layer asks for
    its whole window, also where that is more than the capacity.
    """
    batch, capacity, narrow = (int(n) + 2 for n in draw.ints(6, 3))
    config = _config(impl, QWEN3, layers=3, windows=(None, narrow, capacity + 3))
    caches = impl.make_caches(config, batch, capacity, dtype=torch.bfloat16, device=draw.device)
    return {"kinds": [type(cache).__name__ for cache in caches],
            "shapes": [shape(cache.keys) for cache in caches],
            "dtypes": [str(cache.keys.dtype) for cache in caches],
            "different": len({id(cache) for cache in caches}),
            "device": [cache.keys.device.type for cache in impl.make_caches(config, 1, 2, device="meta")]}


@points(3)
def test_cached_decoding(impl, draw):
    """A prompt and then token by token through the caches gives one forward pass's logits.

    Positions go on where the caches end: ask caches[0].length before the blocks run. Each block
    gets its own cache.
    """
    ids, said = draw.ints(11, 2, 10), {}
    for name, kind in (("GPT-2", GPT2), ("Llama", LLAMA), ("windows", {**LLAMA, "windows": (None, 3)}),
                       ("the first layer rolls", {**GPT2, "windows": (4, None)}),
                       ("all layers roll", {**GPT2, "windows": (3, 4)})):
        model = _model(impl, draw, kind)
        caches = impl.make_caches(model.config, 2, 10, dtype=draw.float, device=draw.device)
        with torch.no_grad():
            said[name] = [model(part, caches=caches) for part in ids.split((4, 1, 1, 3, 1), dim=1)]
    return said


def test_left_padding_in_pieces(impl, draw):
    """With caches, mask and positions go to every block too, also for a single token.

    The mask then covers all tokens so far, the positions only the new ones: hand both on as they are.
    """
    real, positions = _real(draw, 7, 3, seq=7)
    ids, model, said = draw.ints(11, 2, 7), _model(impl, draw, GPT2), []
    caches = impl.make_caches(model.config, 2, 7, draw.float, draw.device)
    with torch.no_grad():
        for start, end in ((0, 5), (5, 6), (6, 7)):
            said.append(model(ids[:, start:end], real[:, None, None, :end], positions[:, start:end], caches))
    return torch.cat(said, 1)[real]


def test_caches_of_a_second_text(impl, draw):
    """New caches know nothing of the last text: it starts at position 0 again, in training mode as well.

    The model keeps no positions and no caches between calls: what is remembered lies in the caches that are given.
    """
    model, said = _model(impl, draw, GPT2), {}
    for name, cuts in (("first text", (2, 1, 1)), ("second text", (1, 1, 2))):
        caches, ids = impl.make_caches(model.config, 2, 4, draw.float, draw.device), draw.ints(11, 2, 4)
        with torch.no_grad():
            said[name] = [model(part, caches=caches) for part in ids.split(cuts, dim=1)]
        said[f"{name}, without caches"] = model.train()(ids)
    return said


def test_bad_caches(impl, draw):
    """Caches that are not one per layer, or given to post-norm blocks, raise a ValueError.

    zip stops at the shorter list, and says nothing. make_caches itself refuses configs that cannot
    decode token by token: post-norm ones, and those that are not causal.
    """
    llama, post = _model(impl, draw, LLAMA), _model(impl, draw, SINUSOIDAL)
    caches = impl.make_caches(llama.config, 1, 8, dtype=draw.float, device=draw.device)
    more, ids = impl.make_caches(llama.config, 1, 8, dtype=draw.float, device=draw.device)[0], draw.ints(11, 1, 3)

    @torch.no_grad()
    def run(model, given):
        model(ids, caches=given)

    return {"one missing": raises(ValueError, lambda: run(llama, caches[:1]), names="caches"),
            "none at all": raises(ValueError, lambda: run(llama, []), names="caches"),
            "one too many": raises(ValueError, lambda: run(llama, [*caches, more]), names="caches"),
            "post-norm": raises(ValueError, lambda: run(post, caches), names="caches"),
            "made for post-norm": raises(
                ValueError, lambda: impl.make_caches(_config(impl, SINUSOIDAL), 1, 8),
                names="norm_position"),
            "made for an encoder": raises(
                ValueError, lambda: impl.make_caches(_config(impl, LLAMA, causal=False), 1, 8),
                names="causal"),
            "left as they were": [cache.length for cache in caches]}


# -- counts

@points(2)
def test_count_parameters(impl, draw):
    """count_parameters is the size of the model: matrices, biases, norms, positions, embeddings.

    Write down the parameters of one of each module. heads · head_dim need not be d_model; a tied
    matrix counts once; only pre-norm models have a norm of their own.
    """
    kinds = {**KINDS, "Qwen3 with biases": {**QWEN3, "qkv_bias": True, "o_bias": True}}
    said = {name: impl.count_parameters(_drawn(impl, draw, kind)) for name, kind in kinds.items()}
    for name in ("ENCODER", "GPT2", "LLAMA_3_2_1B", "QWEN3_0_6B", "POCKET"):
        said[name] = impl.count_parameters(getattr(impl, name))
    return said


@points(2)
def test_flops_per_token(impl, draw):
    """flops_per_token is 2 per number in a matrix, and 4 · heads · head_dim per key and layer.

    Matrices are those of the layers and the unembedding, also where it is tied: reading a row of
    the embedding is no arithmetic, comparing with all rows is. Every token meets seq_len keys.
    """
    said = {name: impl.flops_per_token(_drawn(impl, draw, kind), 7) for name, kind in KINDS.items()}
    for name in ("GPT2", "LLAMA_3_2_1B", "QWEN3_0_6B"):
        said[name] = impl.flops_per_token(getattr(impl, name), 1024)
    said["seq_len 0"] = raises(ValueError, lambda: impl.flops_per_token(impl.GPT2, 0), names="seq_len")
    return said


# -- 2017

@points(2)
def test_encoder_decoder_parameters(impl, draw):
    """EncoderDecoder has two embeddings, an unembedding, encoder.N and decoder.N, and no more.

    PostNormBlocks and CrossBlocks in a ModuleList each. With tie_embeddings the three matrices are
    one. Every block has weights of its own.
    """
    said = {}
    for tied in (True, False):
        model = impl.EncoderDecoder(_drawn(impl, draw, SINUSOIDAL, tie_embeddings=tied))
        said[f"tied={tied}"] = _shapes(model)
        said[f"tied={tied}, parameters"] = sum(p.numel() for p in model.parameters())
    return said


@tolerance(0.06)
def test_encoder_decoder_start(impl, draw):
    """The three matrices of EncoderDecoder start with σ = 1/√d_model, tied or not.

    Then embeddings times √d_model are near 1, as large as the sines and cosines that are added. The
    answers are the spreads, times √d_model.
    """
    said = {}
    for tied in (True, False):
        model = impl.EncoderDecoder(_config(impl, SINUSOIDAL, tie_embeddings=tied, vocab_size=90, d_model=64,
                                            head_dim=None))
        for name in ("source_embedding", "target_embedding", "unembedding"):
            said[f"{name}, tied={tied}"] = 8 * getattr(model, name).weight.detach().std()
    return said


@points(3)
def test_encoder_decoder(impl, draw):
    """The decoder sees the target's past and all that the encoder made of the source.

    encode: the source's embeddings (`_embed` is given) through the encoder's blocks. decode: the
    target's through the decoder's, each with the memory and a causal mask; then unembedding.
    """
    model = draw.fill(impl.EncoderDecoder(_config(impl, SINUSOIDAL, tie_embeddings=False))).eval()
    source, target = draw.ints(11, 2, 6), draw.ints(11, 2, 4)
    said = {"encode": model.encode(source), "logits": model(source, target)}
    said["as many of both, in training mode"] = out = model.train()(source[:, :4], target)
    (out * draw(2, 4, 11)).sum().backward()
    return {**said, "grad of source_embedding": model.source_embedding.weight.grad}


@points(2)
def test_encoder_decoder_masks(impl, draw):
    """source_mask hides padding from the encoder and from the decoder's look at the source.

    target_mask is ANDed with the causal mask and serves the decoder's look at itself.
    """
    model = draw.fill(impl.EncoderDecoder(_config(impl, SINUSOIDAL))).eval()
    source, target = draw.ints(11, 2, 6), draw.ints(11, 2, 4)
    real, _ = _real(draw, 6, 3, seq=6)
    written, _ = _real(draw, 4, 2, seq=4)
    source_mask, target_mask = real[:, None, None], written[:, None, None]
    return {"encode": model.encode(source, source_mask)[real],
            "source": model(source, target, source_mask),
            "both": model(source, target, source_mask, target_mask)[written]}


def test_encoder_decoder_refuses(impl, draw):
    """EncoderDecoder takes post-norm with sinusoidal positions, and raises a ValueError otherwise.

    Look at config.norm_position and config.positions first, and name the one that does not fit.
    """
    return {"pre-norm": raises(ValueError, lambda: impl.EncoderDecoder(_config(impl, LLAMA)),
                               names="norm_position"),
            "learned": raises(ValueError, lambda: impl.EncoderDecoder(_config(impl, ENCODER)),
                              names="positions"),
            "2017": accepts(lambda: impl.EncoderDecoder(_config(impl, SINUSOIDAL)))}
