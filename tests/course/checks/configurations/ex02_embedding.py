"""What the parts of chapter 02 may be given."""

import torch


def check_ids(impl, draw):
    high = draw.size("num_embeddings")
    draw.asked(impl.check_ids, draw.ints("ids", "*batch", high), high)


def embedding(impl, draw):
    vocab, d_model = draw.size("vocab"), draw.size("d_model")
    dtype = draw("dtype", (None, torch.float32, torch.bfloat16, torch.float64))
    module = draw.module(impl.Embedding, vocab, d_model, dtype=dtype)
    draw.asked(module, draw.ints("ids", "*batch", vocab))


def embedding_backward(impl, draw):
    vocab = draw.size("vocab")
    ids = draw.ints("ids", "*batch", vocab)
    draw.asked(impl.embedding_backward, ids, draw.tensor("grad_out", "*batch d_model"), vocab)


def unembedding(impl, draw):
    d_model, vocab = draw.size("d_model"), draw.size("vocab")
    module = draw.module(impl.Unembedding, d_model, vocab, draw("bias", (False, True)))
    draw.asked(module, draw.tensor("x", "*batch d_model"))
    embedding = draw.module(impl.Embedding, vocab, d_model)
    module.tie(embedding)
    draw.see("one parameter", module.weight is embedding.weight)
    draw.see("tied", [module, embedding])
