"""Answers survive the wire, and nothing else is let through."""

import enum
import io
import json
import math
from collections import OrderedDict

import numpy
import pytest
import torch
from torch import nn

from grader.judge import compare
from grader.sandbox import frames, wire
from grader.sandbox.frames import FrameError

ROUND_TRIPS = {
    "none": None, "bool": True, "int": -(10**50), "float": 0.1, "minus zero": -0.0,
    "str": "naïve 🙂 \ud800", "bytes": bytes(range(256)), "list": [1, [2.5, "x"], ()],
    "dict": {"a": 1, 2: b"x", (1, b"y"): None}, "empty tensor": torch.empty(0, 3),
    "number": torch.tensor(3.5), "one of a stride": torch.arange(6.0)[::4][1:],
    "strided": torch.arange(12.0).reshape(3, 4).T,
    "conjugate": torch.randn(3, dtype=torch.complex64).conj(), "parameter": nn.Parameter(torch.ones(2)),
    "ordered": OrderedDict(b=1, a=2), "size": torch.Size([2, 3]), "nan": torch.tensor([math.nan, 1.0]),
    **{name: torch.arange(6).to(dtype).reshape(2, 3) for name, dtype in wire.DTYPES.items()},
}


def _send(answer):
    tree, body = wire.encode(answer)
    stream = io.BytesIO()
    frames.write_frame(stream, {"answer": tree}, body)
    stream.seek(0)
    header, body = frames.read_frame(stream)
    return wire.decode(header["answer"], body)


@pytest.mark.parametrize("answer", ROUND_TRIPS.values(), ids=ROUND_TRIPS)
def test_round_trip(answer):
    once, twice = _send(answer), _send(answer)
    assert compare.differences(once, twice, "cpu") == {}
    for leaf in compare.leaves(once).values():
        assert leaf.kind != "other"
    if isinstance(answer, torch.Tensor):
        assert once.value.dtype == answer.dtype and once.value.shape == answer.shape
        assert torch.equal(once.value.nan_to_num(7), answer.detach().resolve_conj().nan_to_num(7))
        assert once.requires_grad == answer.requires_grad


def test_floats_keep_every_bit():
    for number in (0.1, 1e-320, math.inf, -math.inf):
        assert _send(number).value == number
    assert math.isnan(_send(math.nan).value)


class Port(enum.IntEnum):
    HTTP = 80


@pytest.mark.parametrize("mine, right", [(numpy.float64(0.1), 0.1), (Port.HTTP, 80), (numpy.str_("a"), "a")])
def test_a_kind_of_number_counts_as_the_number(mine, right):
    assert compare.differences(_send(mine), _send(right), "cpu") == {}


def test_facts_about_memory():
    x = torch.arange(6.0)
    tree, _ = wire.encode([x[2:], x + 1], {x.untyped_storage().data_ptr()})
    assert [item["aliases_input"] for _, item in tree["items"]] == [True, False]


class Sly(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        raise AssertionError("the encoder must not call this")


class Rude:
    def __getattribute__(self, name):
        raise AssertionError("the encoder must not ask this object anything")


REFUSED = {
    "an integer of more than 4,300 digits": 10**5000,
    "a numpy.ndarray": numpy.ones(3),
    "a numpy.float32": numpy.float32(1),
    "a sparse tensor": torch.ones(2).to_sparse(),
    "meta device": torch.ones(2, device="meta"),
    "a Sly, a subclass of Tensor": torch.ones(2).as_subclass(Sly),
    "a Rude": Rude(),
    "too large": torch.ones(1).expand(2**40),
    "a set": {1},
    "a function": len.__class__ and (lambda: 1),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_no_answer_is_said_in_words(words):
    leaf = _send(REFUSED[words])
    assert leaf.kind == "other" and words in leaf.value
    said = compare.differences(leaf, wire.Leaf("tensor", torch.ones(2), "cpu"), "cpu")
    assert words in said[""][0]


def test_a_cycle_and_a_deep_list_end():
    cycle = [1]
    cycle.append(cycle)
    deep = []
    for _ in range(100):
        deep = [deep]
    for answer, words in ((cycle, "contains itself"), (deep, "nested more than")):
        assert words in [leaf.value for leaf in compare.leaves(_send(answer)).values()
                         if leaf.kind == "other"][0]


TENSOR = {"kind": "tensor", "dtype": "float32", "shape": [2], "at": 0, "device": "cpu",
          "requires_grad": False, "aliases_input": False}
FORGED = {
    "past the end": {**TENSOR, "shape": [3]},
    "negative offset": {**TENSOR, "at": -4},
    "negative size": {**TENSOR, "shape": [-1]},
    "huge": {**TENSOR, "shape": [2**62, 2**62]},
    "huge and empty": {**TENSOR, "shape": [0, 2**70]},
    "size that is no int": {**TENSOR, "shape": [True]},
    "unknown dtype": {**TENSOR, "dtype": "object"},
    "dtype that is no text": {**TENSOR, "dtype": ["float32"]},
    "a flag that is no bool": {**TENSOR, "requires_grad": 1},
    "no shape": {k: v for k, v in TENSOR.items() if k != "shape"},
    "unknown kind": {"kind": "pickle", "value": "x"},
    "kind that is no text": {"kind": {}},
    "int that is none": {"kind": "int", "value": "1e9"},
    "int that is too long": {"kind": "int", "value": "9" * 10_000},
    "float that is none": {"kind": "float", "value": "one"},
    "float out of range": {"kind": "float", "value": "0x1p+99999"},
    "bytes that are none": {"kind": "bytes", "value": "zz"},
    "list that is none": {"kind": "list", "items": {"0": 1}},
    "item that is no pair": {"kind": "list", "items": [["[0]"]]},
    "a list": [],
    "two of one label": {"kind": "dict", "items": [["a", {"kind": "none"}]] * 2},
    "a label that is too long": {"kind": "dict", "items": [["a" * 999, {"kind": "none"}]]},
    "two tensors in one place": {"kind": "list", "items": [["[0]", TENSOR], ["[1]", TENSOR]]},
    "a bool that is neither": {**TENSOR, "dtype": "bool", "shape": [8]},
}


@pytest.mark.parametrize("tree", FORGED.values(), ids=FORGED)
def test_forged_answers_are_refused(tree):
    with pytest.raises(FrameError):
        wire.decode(tree, bytes(range(8)))


def test_a_deep_tree_is_refused():
    tree = {"kind": "none"}
    for _ in range(200):
        tree = {"kind": "list", "items": [["[0]", tree]]}
    with pytest.raises(FrameError, match="deep"):
        wire.decode(tree, b"")


@pytest.mark.parametrize("content", [
    b"\x7f\xff\xff\xff\x00\x00\x00\x00",                 # 2 GB announced
    b"\x00\x00\x00\x02\x00\x00\x00\x00[]",               # no object
    b"\x00\x00\x00\x03\x00\x00\x00\x00{x}",              # no JSON
    b"\x00\x00\x00\x09\x00\x00\x00\x00" + b'{"a":NaN}',  # a constant that JSON has not
    b"\x00\x00\xc3\x50\x00\x00\x00\x00" + b"[" * 50_000,  # too deep for the parser
])
def test_forged_frames_are_refused(content):
    with pytest.raises(FrameError):
        frames.read_frame(io.BytesIO(content))


@pytest.mark.parametrize("length", range(0, 30, 3))
def test_a_frame_cut_short_is_an_end(length):
    stream = io.BytesIO()
    frames.write_frame(stream, {"a": "0123456789"}, b"0123456789")
    with pytest.raises(EOFError):
        frames.read_frame(io.BytesIO(stream.getvalue()[:length]))


def test_headers_are_json():
    stream = io.BytesIO()
    frames.write_frame(stream, {"a": 1})
    assert json.loads(stream.getvalue()[8:]) == {"a": 1}
