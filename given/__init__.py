"""Code that every student is given as it is, beside `exercises/` and `solutions/`.

Chapters import it absolutely, `from given.sizes import at_least_one`, in the exercises as in the
reference: what is here is no part of any exercise. It imports no chapter.

init: the spread of a model's first weights.
sizes: checks of arguments, and half precision made wide, for every chapter.
long_words: byte-pair merges by a heap, for lesson 01's words that are long.
tensors: what is wrong with the tensors of a file.
torch_kernels: a model's parts on torch's own kernels, for lessons and scripts that train.
chat_template: the sandbox in which lesson 20 runs a chat template.
"""
