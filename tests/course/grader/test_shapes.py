"""Types and shapes are checked in one pass, and said as jaxtyping says them."""

import gc
import weakref
from collections.abc import Callable, Iterable, Sequence

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


def test_what_has_fitted_is_known_of_a_function_that_is_made_again(monkeypatch):
    """One function of the same lines for each call: looked at once, but for another's annotations."""
    def outer(kind):
        def inner(x: kind) -> int:
            return len(x)
        return shapes.checked(inner)
    assert outer(list[int])([1]) == 1
    with monkeypatch.context() as patched:
        patched.setattr(shapes, "_beartype", None)      # what would look
        assert outer(list[int])([1, 2]) == 2
    for kind, wrong in ((list[int], ["a"]), (list[str], [1])):
        with pytest.raises(TypeCheckError):
            outer(kind)(wrong)


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


def test_what_has_fitted_is_not_taken_for_what_has_not():
    """Arguments of known kinds, and a result of another dtype, of other sizes, of another type, or beside None."""
    results = [torch.ones(2, 3), torch.ones(2, 4), torch.ones(2, 3), torch.ones(2, 3, dtype=torch.int64), None]
    calls = iter(results)

    def function(x: Float[Tensor, "batch d"], y: int | None = None) -> Float[Tensor, "batch d"]:    # noqa: F722
        return next(calls)
    function.__qualname__ = "function"      # as one of a chapter's own
    checked, x = shapes.checked(function), torch.ones(2, 3)
    assert checked(x) is results[0]
    with pytest.raises(TypeCheckError, match="return value"):
        checked(x)
    assert checked(x) is results[2]
    for _ in range(2):
        with pytest.raises(TypeCheckError, match="return value"):
            checked(x)
    with pytest.raises(TypeCheckError, match="y"):
        checked(x, 0.5)
    with pytest.raises(TypeCheckError, match="x"):
        checked(x.long())
    assert next(calls, None) is None        # what was refused was not called


def test_what_a_list_or_a_dict_holds_is_looked_at_each_time():
    def function(x: list[int], y: tuple[int, ...] = (), z: dict[str, int] | None = None) -> tuple[int, int]:
        return len(x), sum(y)
    function.__qualname__ = "function"
    checked = shapes.checked(function)
    assert checked([1]) == checked([2]) == (1, 0)
    assert checked([1] * 1000, z={"a": 1}) == (1000, 0)
    for wrong in ((["a"],), (["a"] * 1000,), ([1], ("a",))):
        with pytest.raises(TypeCheckError):
            checked(*wrong)
    with pytest.raises(TypeCheckError):
        checked([1], z={"a": "b"})


def test_what_has_fitted_is_not_looked_at_again(monkeypatch):
    """Lists of tensors, functions and iterators as well, which half of the later chapters' functions take."""
    def function(x: Sequence[Float[Tensor, "_"]], add: Callable[[Tensor], Tensor], y: Iterable[int],   # noqa: F821
                 z: torch.Generator | None = None) -> list[Float[Tensor, "_"]]:     # noqa: F821
        return [add(part) for part in x]
    function.__qualname__ = "function"
    checked, x = shapes.checked(function), [torch.ones(2), torch.ones(3)]
    assert len(checked(x, torch.neg, iter([1]))) == 2
    with monkeypatch.context() as patched:
        patched.setattr(shapes, "jaxtyped", None)       # what would look
        assert len(checked(x[::-1], torch.abs, iter([2]))) == 2
    for wrong in (([torch.ones(2, 2)] * 2, torch.neg, [1]), (x, 3, [1]), (x, torch.neg, 1), (x, torch.neg, [1], 2)):
        with pytest.raises(TypeCheckError):
            checked(*wrong)


def test_a_result_that_is_looked_at_alone_is_let_go():
    sizes = iter((2, 3))

    def function(x: Float[Tensor, "d"]) -> Float[Tensor, "e"]:      # noqa: F821
        return torch.ones(next(sizes))
    function.__qualname__ = "function"
    checked, x = shapes.checked(function), torch.ones(3)
    assert checked(x).shape == (2,)
    alive = weakref.ref(checked(x))
    gc.collect()
    assert alive() is None


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(shapes, "MANY", 3)

    def function(x: Float[Tensor, "d"]) -> Float[Tensor, "d"]:      # noqa: F821
        return x
    function.__qualname__ = "function"
    checked = shapes.checked(function)
    for size in range(9):
        assert checked(torch.ones(size)).shape == (size,)
    [fitted] = [cell.cell_contents for cell in checked.__closure__ if isinstance(cell.cell_contents, dict)]
    assert 0 < len(fitted) <= 3
