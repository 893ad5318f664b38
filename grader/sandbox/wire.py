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
    encoder = _Encoder(input_storages)
    try:
        return encoder.node(answer), bytes(encoder.body)
    except OverflowError:       # what comes after them is not looked at
        return _other(f"more than {MAX_NODES:,} values"), b""


class _Encoder:
    """One answer on its way to the wire: the bytes of its tensors, and how many values it has had."""

    def __init__(self, input_storages):
        self.body, self._count, self._storages = bytearray(), 0, input_storages
        self._above: list[int] = []         # the containers that lie around the one at hand

    def node(self, x) -> dict:
        self._count += 1
        kind = type(x)
        if self._count > MAX_NODES:
            raise OverflowError
        if value := _value(x, kind):
            return value
        if kind in (list, tuple, torch.Size, dict, OrderedDict):
            return self._container(x, kind)
        if kind in (torch.Tensor, torch.nn.Parameter):
            return self._tensor(x)
        return _other(describe(x))

    def _container(self, x, kind: type) -> dict:
        if id(x) in self._above:
            return _other("a container that contains itself")
        if len(self._above) >= MAX_DEPTH:
            return _other(f"containers nested more than {MAX_DEPTH} deep")
        self._above.append(id(x))
        if kind in (dict, OrderedDict):
            node = {"kind": "dict", "items": [[_label(key), self.node(value)] for key, value in dict.items(x)]}
        else:
            node = {"kind": "list" if kind is list else "tuple",
                    "items": [[f"[{i}]", self.node(value)] for i, value in enumerate(x)]}
        self._above.pop()
        return node

    def _tensor(self, x) -> dict:
        requires_grad, x = x.requires_grad, torch.Tensor.detach(x)      # whatever methods it was given
        name = str(x.dtype).removeprefix("torch.")
        if x.layout != torch.strided:
            return _other(f"a sparse tensor ({x.layout})")
        if x.device.type == "meta":
            return _other("a tensor on the meta device, which has no numbers")
        if name not in DTYPES:
            return _other(f"a tensor of dtype {x.dtype}")
        if x.numel() * x.element_size() > MAX_TENSOR or len(self.body) > MAX_BODY - MAX_TENSOR:
            return _other(f"a tensor of shape {tuple(x.shape)}, too large for an answer")
        # a clone: one number with an odd stride counts as contiguous, and cannot be viewed as bytes
        data = x.resolve_conj().resolve_neg().cpu().reshape(-1)
        data = data.clone(memory_format=torch.contiguous_format)
        node = {"kind": "tensor", "dtype": name, "shape": list(x.shape), "at": len(self.body),
                "device": x.device.type, "requires_grad": requires_grad,
                "aliases_input": x.untyped_storage().data_ptr() in self._storages}
        self.body += data.view(torch.uint8).numpy().tobytes()
        return node


def _value(x, kind: type) -> dict | None:
    """A value without parts; None where it has some, or is none that can be sent.

    A subclass, such as numpy.float64 or an IntEnum, counts as what it is a kind of; its base's own methods read it,
    so that nothing of it is called.
    """
    if x is None:
        return {"kind": "none"}
    if kind is bool:
        return {"kind": "bool", "value": x}
    if issubclass(kind, int):
        if int.bit_length(x) > MAX_DIGITS * math.log2(10):
            return _other(f"an integer of more than {MAX_DIGITS:,} digits")
        return {"kind": "int", "value": int.__repr__(x)}
    if issubclass(kind, float):
        return {"kind": "float", "value": float.hex(x)}
    if issubclass(kind, str) or kind in (torch.dtype, torch.device):
        text = str.__str__(x) if issubclass(kind, str) else str(x)
        return {"kind": "str", "value": text} if len(text) <= MAX_TEXT else _other(
            f"a string of {len(text):,} characters")
    if kind is bytes:
        return {"kind": "bytes", "value": x.hex()} if len(x) <= MAX_TEXT else _other(f"{len(x):,} bytes")
    return None


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

class TooLarge(FrameError):
    """An answer that is many times as large as the right one: comparing it would take as many times as long."""


@dataclass(frozen=True)
class Size:
    """How much an answer may hold."""

    values: int = MAX_NODES
    text: int = 1 << 30         # characters of strings, bytes and labels
    digits: int = MAX_DIGITS    # of one int
    numbers: int = MAX_BODY     # bytes of tensors

    @classmethod
    def beside(cls, tree: dict, body: bytes) -> "Size":
        """What a wrong answer may hold where this is the right one, as it was sent: some times as much."""
        values, text, digits, left = 0, 0, 0, [tree]
        while left:
            node = left.pop()
            values += 1
            for label, item in node.get("items", ()):
                text += len(label)
                left.append(item)
            if node["kind"] == "int":
                digits = max(digits, len(node["value"]))
            elif isinstance(said := node.get("value"), str):
                text += len(said)
        return cls(min(4 * values + 1000, MAX_NODES), 4 * text + 20_000, min(2 * digits + 50, MAX_DIGITS),
                   4 * len(body) + (1 << 20))


def decode(tree, body: bytes, most: Size = Size()) -> Leaf | Branch:      # noqa: B008
    """The answer that `encode` wrote; FrameError where it could not have, TooLarge where it holds more than `most`."""
    if len(body) > most.numbers:
        raise TooLarge(f"tensors of {len(body):,} bytes")
    decoder = _Decoder(body, most)
    answer = decoder.node(tree, 0)
    if decoder.used != len(body):
        raise FrameError(f"{len(body) - decoder.used:,} bytes came that belong to no tensor")
    return answer


class _Decoder:
    """One answer as it is read: how many values, characters and bytes it has had."""

    def __init__(self, body: bytes, most: Size):
        self.used, self._body, self._count, self._text, self._most = 0, body, 0, 0, most

    def node(self, node, depth: int) -> Leaf | Branch:
        self._count += 1
        if self._count > self._most.values + 1:
            raise TooLarge(f"more than {self._most.values:,} values")
        if depth > MAX_DEPTH + 1:
            raise FrameError("the answer is nested too deep")
        self._hear(node.get("value") if type(node) is dict else None)
        kind = _get(node, "kind", str)
        if kind in ("list", "tuple", "dict"):
            return Branch(kind, self._items(_get(node, "items", list), depth + 1))
        return self._tensor(node) if kind == "tensor" else _leaf(node, kind, self._most.digits)

    def _hear(self, text) -> None:
        """Count the characters of a label or a value."""
        self._text += len(text) if type(text) is str else 0
        if self._text > self._most.text + self._most.digits:
            raise TooLarge(f"more than {self._most.text:,} characters")

    def _items(self, items: list, depth: int) -> dict:
        found = {}
        for item in items:
            if type(item) is not list or len(item) != 2 or type(item[0]) is not str:
                raise FrameError("an item is not a pair of a label and a value")
            if item[0] in found or len(item[0]) > MAX_LABEL:
                raise FrameError("two items have the same label, or one label is too long")
            self._hear(item[0])
            found[item[0]] = self.node(item[1], depth)
        return found

    def _tensor(self, node) -> Leaf:
        """Tensors lie one behind the other, so that few bytes cannot become many."""
        dtype = DTYPES.get(_get(node, "dtype", str))
        shape, at = _get(node, "shape", list), _get(node, "at", int)
        if dtype is None or len(shape) > 64 or any(type(n) is not int or not 0 <= n <= MAX_TENSOR for n in shape):
            raise FrameError("a tensor has an unknown dtype or an impossible shape")
        size = math.prod(shape) * dtype.itemsize
        if size > MAX_TENSOR or at + size > len(self._body):
            raise FrameError("a tensor reaches past the bytes that were sent")
        if at != self.used:
            raise FrameError("a tensor does not begin where the one before it ends")
        self.used += size
        value = _numbers(self._body[at:at + size], dtype).reshape(shape)
        return Leaf("tensor", value, _get(node, "device", str)[:20],
                    _get(node, "requires_grad", bool), _get(node, "aliases_input", bool))


def _numbers(data: bytes, dtype: torch.dtype) -> torch.Tensor:
    """The numbers that these bytes are."""
    if dtype == torch.bool and any(byte > 1 for byte in set(data)):
        raise FrameError("a bool that is neither 0 nor 1")
    return torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)


def _leaf(node, kind: str, digits: int) -> Leaf:
    """A value without parts."""
    if kind == "none":
        return Leaf(kind)
    if kind == "bool":
        return Leaf(kind, _get(node, "value", bool))
    text = _get(node, "value", str)
    if kind in ("str", "other"):
        return Leaf(kind, text)
    try:
        if kind == "int" and len(text) <= MAX_DIGITS + 1:
            return Leaf(kind, int(text)) if len(text) <= digits + 1 else Leaf("other", f"an int of {len(text)} digits")
        if kind == "float" and len(text) <= 64:
            return Leaf(kind, float.fromhex(text))
        if kind == "bytes":
            return Leaf(kind, bytes.fromhex(text))
    except (ValueError, OverflowError):
        pass
    raise FrameError(f"this is no {kind[:20]}: {text[:40]!r}")


def plain(answer: Leaf | Branch):
    """An answer as the values that it was made of, to look at."""
    if isinstance(answer, Leaf):
        return answer.value
    items = {label: plain(item) for label, item in answer.items.items()}
    return items if answer.kind == "dict" else {"list": list, "tuple": tuple}[answer.kind](items.values())


def _get(node, key: str, kind: type):
    value = node.get(key) if type(node) is dict else None
    if type(value) is not kind:
        raise FrameError(f"{key!r} is missing or is no {kind.__name__}")
    return value
