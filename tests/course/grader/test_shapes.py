"""Types and shapes are checked in one pass, and said as jaxtyping says them."""

import gc
import weakref

import pytest
import torch
from jaxtyping import Float, TypeCheckError, jaxtyped
from torch import Tensor

from grader.course import shapes

WRONG = {
    "an argument's rank": (lambda x: x, (torch.ones(3),)),
    "an argument's type": (lambda x: x, (None,)),
    "a result's shape": (lambda x: x[:, :1], (torch.ones(2, 3),)),
    "a result's type": (lambda x: None, (torch.ones(2, 3),)),
}


def annotated(call):
    """A function of one annotated argument that calls this."""
    def function(x: Float[Tensor, "batch d"]) -> Float[Tensor, "batch d"]:     # noqa: F722
        return call(x)
    return function


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said_as_jaxtyping_says_it(what):
    call, arguments = WRONG[what]
    said = []
    for decorate in (shapes.checked, jaxtyped(typechecker=shapes._beartype)):
        with pytest.raises(TypeCheckError) as error:
            decorate(annotated(call))(*arguments)
        said.append(str(error.value))
    assert said[0] == said[1]


def test_a_function_is_called_once():
    calls = []
    checked = shapes.checked(annotated(lambda x: calls.append(1)))
    with pytest.raises(TypeCheckError):
        checked(torch.ones(2, 3))
    with pytest.raises(TypeCheckError):
        checked(torch.ones(2))
    assert calls == [1]


def test_sizes_hold_within_a_call_and_not_beyond():
    checked = shapes.checked(annotated(lambda x: x))
    assert checked(torch.ones(2, 3)).shape == (2, 3) and checked(torch.ones(4, 5)).shape == (4, 5)


def test_an_int_is_taken_where_a_float_is_asked_for():
    def function(x: float) -> float:
        return x
    assert shapes.checked(function)(3) == 3


def test_what_a_function_makes_at_each_call_is_let_go():
    @shapes.checked
    def outer(x: Float[Tensor, "d"]) -> int:        # noqa: F821
        def inner(y: int) -> int:
            return y + len(x)
        return shapes.checked(inner)(1)
    x = torch.ones(3)
    alive = weakref.ref(x)
    assert outer(x) == 4
    del x
    gc.collect()
    assert alive() is None


def test_a_file_of_the_same_name_has_classes_of_its_own(tmp_path):
    """beartype knows classes by their names: what the first file put off is done before the second is loaded."""
    source = ("class Thing:\n    @classmethod\n    def make(cls) -> 'Thing':\n        return cls()\n"
              "def same(x: dict[str, Thing]) -> dict[str, Thing]:\n    return x\n")
    made = []
    for number in range(2):
        path = tmp_path / f"{number}.py"
        path.write_text(source)
        space = {"__name__": "exercises.ex99_thing"}
        shapes.settle()
        from beartype._cache.cacheclear import clear_caches
        clear_caches()
        exec(shapes.CheckedLoader("exercises.ex99_thing", str(path)).source_to_code(source.encode(), str(path)), space)
        made.append(space)
    for space in made:
        assert space["same"]({"a": space["Thing"].make()})
