"""An answer as a JSON tree and raw buffers, and back, with everything validated. No pickle.

The tensors of the tree point into the buffer. The reading side trusts nothing: every dtype,
size, depth and length is checked before memory is taken.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass, field

import torch

from grader.sandbox.frames import MAX_BODY, FrameError

MAX_TENSOR = 64 << 20       # bytes of one tensor
MAX_DEPTH = 16              # lists within lists
MAX_NODES = 200_000         # leaves and branches of one answer
MAX_TEXT = 1 << 20          # characters of a string, bytes of a bytes
MAX_DIGITS = 4_300          # digits of an int
MAX_LABEL = 200             # characters of a dict's key

DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128)}


@dataclass
class Leaf:
    """One value of an answer. `kind` is "tensor", "none", "bool", "int", "float", "str", "bytes",
    or "other" for what cannot be an answer, with `value` then saying in words what it was."""

    kind: str
    value: object = None
    device: str = ""
    requires_grad: bool = False
    aliases_input: bool = False


@dataclass
class Branch:
    """A list, tuple or dict of leaves and branches; `items` maps labels to them, in order."""

    kind: str
    items: dict = field(default_factory=dict)


# -- writing: this side runs next to a student's code and never calls into their objects ----

def encode(answer, input_storages=frozenset()) -> tuple[dict, bytes]:
    """An answer as a JSON tree and the bytes of its tensors."""
    body, count = bytearray(), 0
    above: list[int] = []

    def walk(x):
        nonlocal count
        count += 1
        kind = type(x)
        if count > MAX_NODES:
            return _other(f"more than {MAX_NODES:,} values")
        if x is None:
            return {"kind": "none"}
        if kind is bool:
            return {"kind": "bool", "value": x}
        # A subclass, such as numpy.float64 or an IntEnum, counts as what it is a kind of; its
        # base's own methods read it, so that nothing of it is called.
        if issubclass(kind, int):
            if int.bit_length(x) > MAX_DIGITS * math.log2(10):
                return _other(f"an integer of more than {MAX_DIGITS:,} digits")
            return {"kind": "int", "value": int.__repr__(x)}
        if issubclass(kind, float):
            return {"kind": "float", "value": float.hex(x)}
        if issubclass(kind, str) or kind in (torch.dtype, torch.device):
            text = str.__str__(x) if issubclass(kind, str) else str(x)
            if len(text) > MAX_TEXT:
                return _other(f"a string of {len(text):,} characters")
            return {"kind": "str", "value": text}
        if kind is bytes:
            if len(x) > MAX_TEXT:
                return _other(f"{len(x):,} bytes")
            return {"kind": "bytes", "value": x.hex()}
        if kind in (list, tuple, torch.Size, dict, OrderedDict):
            if id(x) in above:
                return _other("a container that contains itself")
            if len(above) >= MAX_DEPTH:
                return _other(f"containers nested more than {MAX_DEPTH} deep")
            above.append(id(x))
            if kind in (dict, OrderedDict):
                items = [[_label(key), walk(value)] for key, value in dict.items(x)]
                node = {"kind": "dict", "items": items}
            else:
                node = {"kind": "list" if kind is list else "tuple",
                        "items": [[f"[{i}]", walk(value)] for i, value in enumerate(x)]}
            above.pop()
            return node
        if kind in (torch.Tensor, torch.nn.Parameter):
            return tensor(x)
        return _other(describe(x))

    def tensor(x):
        nonlocal body
        requires_grad, x = x.requires_grad, torch.Tensor.detach(x)      # whatever methods it was given
        name = str(x.dtype).removeprefix("torch.")
        if x.layout != torch.strided:
            return _other(f"a sparse tensor ({x.layout})")
        if x.device.type == "meta":
            return _other("a tensor on the meta device, which has no numbers")
        if name not in DTYPES:
            return _other(f"a tensor of dtype {x.dtype}")
        if x.numel() * x.element_size() > MAX_TENSOR or len(body) > MAX_BODY - MAX_TENSOR:
            return _other(f"a tensor of shape {tuple(x.shape)}, too large for an answer")
        # a clone: one number with an odd stride counts as contiguous, and cannot be viewed as bytes
        data = x.resolve_conj().resolve_neg().cpu().reshape(-1)
        data = data.clone(memory_format=torch.contiguous_format)
        node = {"kind": "tensor", "dtype": name, "shape": list(x.shape), "at": len(body),
                "device": x.device.type, "requires_grad": requires_grad,
                "aliases_input": x.untyped_storage().data_ptr() in input_storages}
        body += data.view(torch.uint8).numpy().tobytes()
        return node

    return walk(answer), bytes(body)


def _other(words: str) -> dict:
    return {"kind": "other", "value": words}


def _label(key) -> str:
    """A dict's key as text: a string as it is, other simple kinds as an index, such as [3]."""
    if type(key) is str:
        return key[:MAX_LABEL]
    if type(key) in (int, float, bool, bytes, type(None)):
        return f"[{key!r}]"[:MAX_LABEL] if type(key) is not int or key.bit_length() < 9999 else "[…]"
    if type(key) is tuple and len(key) < 9 and all(type(k) in (int, str, bytes) for k in key):
        return f"[{', '.join(map(_label, key))}]"[:MAX_LABEL]
    return f"[{describe(key)}]"


def describe(x) -> str:
    """What an object is, in words, without asking the object."""
    name = type.__dict__["__name__"].__get__(type(x))
    module = type.__dict__["__module__"].__get__(type(x))
    if issubclass(type(x), torch.Tensor):
        return f"a {name}, a subclass of Tensor"
    article = "an" if name[:1].lower() in "aeiou" else "a"
    return f"{article} {module + '.' if module == 'numpy' else ''}{name}"


# -- reading: this side believes nothing -----------------------------------------------------

def decode(tree, body: bytes) -> Leaf | Branch:
    """The answer that `encode` wrote; FrameError where it could not have written it."""
    count = used = 0

    def tensor(node):
        """Tensors lie one behind the other, so that few bytes cannot become many."""
        nonlocal used
        leaf = _tensor(node, body, used)
        used += leaf.value.numel() * leaf.value.element_size()
        return leaf

    def walk(node, depth):
        nonlocal count
        count += 1
        if count > MAX_NODES + 1 or depth > MAX_DEPTH + 1:
            raise FrameError("the answer is too large or nested too deep")
        kind = _get(node, "kind", str)
        if kind in ("list", "tuple", "dict"):
            items = {}
            for item in _get(node, "items", list):
                if type(item) is not list or len(item) != 2 or type(item[0]) is not str:
                    raise FrameError("an item is not a pair of a label and a value")
                if item[0] in items or len(item[0]) > MAX_LABEL:
                    raise FrameError("two items have the same label, or one label is too long")
                items[item[0]] = walk(item[1], depth + 1)
            return Branch(kind, items)
        if kind == "tensor":
            return tensor(node)
        if kind == "none":
            return Leaf(kind)
        if kind == "bool":
            return Leaf(kind, _get(node, "value", bool))
        text = _get(node, "value", str)
        if kind in ("str", "other"):
            return Leaf(kind, text)
        try:
            if kind == "int" and len(text) <= MAX_DIGITS + 1:
                return Leaf(kind, int(text))
            if kind == "float" and len(text) <= 64:
                return Leaf(kind, float.fromhex(text))
            if kind == "bytes":
                return Leaf(kind, bytes.fromhex(text))
        except (ValueError, OverflowError):
            pass
        raise FrameError(f"this is no {kind[:20]}: {text[:40]!r}")

    answer = walk(tree, 0)
    if used != len(body):
        raise FrameError(f"{len(body) - used:,} bytes came that belong to no tensor")
    return answer


def plain(answer: Leaf | Branch):
    """An answer as the values that it was made of, to look at."""
    if isinstance(answer, Leaf):
        return answer.value
    items = {label: plain(item) for label, item in answer.items.items()}
    return items if answer.kind == "dict" else {"list": list, "tuple": tuple}[answer.kind](items.values())


def _tensor(node, body: bytes, begin: int) -> Leaf:
    dtype = DTYPES.get(_get(node, "dtype", str))
    shape, at = _get(node, "shape", list), _get(node, "at", int)
    if dtype is None or len(shape) > 64 or any(type(n) is not int or n < 0 for n in shape):
        raise FrameError("a tensor has an unknown dtype or an impossible shape")
    size = math.prod(shape) * dtype.itemsize
    if size > MAX_TENSOR or at + size > len(body):
        raise FrameError("a tensor reaches past the bytes that were sent")
    if at != begin:
        raise FrameError("a tensor does not begin where the one before it ends")
    if any(n > MAX_TENSOR for n in shape):
        raise FrameError("a tensor has an impossible shape")
    data = bytearray(body[at:at + size])
    if dtype == torch.bool and any(byte > 1 for byte in set(data)):
        raise FrameError("a bool that is neither 0 nor 1")
    value = torch.frombuffer(data, dtype=dtype) if size else torch.empty(0, dtype=dtype)
    return Leaf("tensor", value.reshape(shape), _get(node, "device", str)[:20],
                _get(node, "requires_grad", bool), _get(node, "aliases_input", bool))


def _get(node, key: str, kind: type):
    value = node.get(key) if type(node) is dict else None
    if type(value) is not kind:
        raise FrameError(f"{key!r} is missing or is no {kind.__name__}")
    return value
