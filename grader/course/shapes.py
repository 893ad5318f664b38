"""Types and shapes, checked at every call as jaxtyping's annotations say.

jaxtyping's own decorator looks at each argument three times and binds it by name, which took half of a whole model's
checks. Here beartype looks once; where something is wrong jaxtyping's is asked, for its words. That still took half:
a model calls the same parts with the same shapes again and again. So what has fitted once is not looked at again.
"""

import abc
import ast
import collections.abc
import contextlib
import functools
import inspect
import threading
import types
import typing
import weakref
from importlib.machinery import SourceFileLoader

import torch
from beartype import BeartypeConf, beartype
from beartype.roar import BeartypeCallHintParamViolation, BeartypeCallHintReturnViolation
from jaxtyping import AbstractArray, jaxtyped
from torch import Tensor

from grader.course.lent import Lent

MANY = 1000         # kinds of arguments that a function remembers, and of results for each
ITEMS = 100         # of a list or tuple that are looked at, spread over all of it: beartype looks at one

_beartype = beartype(conf=BeartypeConf(is_pep484_tower=True))       # where a float is asked for, an int will do
_explained = jaxtyped(typechecker=_beartype)
_local = weakref.WeakKeyDictionary()     # of functions that others make: annotations, and what fitted, by their lines
_put_off = []       # what `checked` has yet to do, for each function that was not called so far
_given = threading.local()      # a result that is there already, while it is looked at


def checked(thing):
    """A function, method or class whose calls raise jaxtyping's TypeCheckError where types or shapes do not fit."""
    if isinstance(thing, (classmethod, staticmethod)):
        return type(thing)(checked(thing.__func__))
    if not inspect.isfunction(thing) or inspect.isgeneratorfunction(thing) or _speaks_of_arguments(thing):
        return _explained(thing)
    if not thing.__annotations__:
        return thing
    fn, quick, fitted = thing, None, ...        # fitted: what fitted so far, the kinds of arguments → those of results
    local = "<locals>" in fn.__qualname__       # these are made anew at each call, and called at once

    def begin():
        nonlocal fitted
        if fitted is ...:
            for name, annotation in fn.__annotations__.items():
                if isinstance(annotation, str):         # a class by its name, in its own body
                    with contextlib.suppress(Exception):
                        fn.__annotations__[name] = eval(annotation, fn.__globals__)
            fitted = None
            if all(map(_decided_by_kind, fn.__annotations__.values())):
                fitted = _fitted_by_others(fn) if local else {}

    def settle():
        nonlocal quick
        if quick is None:       # it takes a millisecond, and most of a chapter's parts are never called
            begin()
            quick = _beartype(fn if fitted is None else result)

    @functools.wraps(fn)
    def result(*args, **kwargs):
        return vars(_given)["result"] if vars(_given) else fn(*args, **kwargs)

    @functools.wraps(fn)
    def checked_call(*args, **kwargs):
        __tracebackhide__ = True
        begin()
        kinds = fitted is not None and (*map(_kind, args), *kwargs, *map(_kind, kwargs.values()))
        known = kinds and fitted.get(kinds)
        if known:
            value = fn(*args, **kwargs)
            if _kind(value) in known:
                return value
        settle()
        try:
            with jaxtyped("context"):       # sizes of axes hold within one call
                if known:
                    _look_at(value, quick, args, kwargs)
                else:
                    value = quick(*args, **kwargs)
                if kinds:
                    _remember(fitted, kinds, _kind(value))
                return value
        except BeartypeCallHintParamViolation:
            explain = _explained(fn)        # which raises before it calls fn
        except BeartypeCallHintReturnViolation as error:
            explain = _explained(_returning(fn, _returned(error)))
        return explain(*args, **kwargs)
    if not local:
        _put_off.append(settle)
    return checked_call


def _fitted_by_others(fn) -> dict | None:
    """What fitted a function of the same lines with the same annotations, one that an earlier call has made."""
    annotations, fitted = _local.setdefault(fn.__code__, (fn.__annotations__, {}))
    return fitted if annotations == fn.__annotations__ else None


def settle() -> None:
    """Do what was put off to a first call, before another file has classes of these names: beartype confuses them."""
    while _put_off:
        with contextlib.suppress(Exception):        # calling it will say what is wrong
            _put_off.pop()()


def _kind(value):
    """All that an annotation can ask of a value, where it is `_decided_by_kind`."""
    if isinstance(value, Tensor):
        return type(value), value.dtype, value.shape
    if isinstance(value, (list, tuple)):
        kinds = map(_kind, value[::len(value) // ITEMS + 1])
        return type(value), frozenset(kinds) if isinstance(value, list) else tuple(kinds)
    return type(value)


def _decided_by_kind(annotation) -> bool:
    """Whether two values of one `_kind` both fit an annotation, or neither does: it does not tell what a dict holds."""
    origin = typing.get_origin(annotation)
    if origin is collections.abc.Callable:      # nobody looks at what it takes
        return True
    if origin in (types.UnionType, typing.Union, tuple, list, collections.abc.Sequence, collections.abc.Iterable):
        return all(map(_decided_by_kind, typing.get_args(annotation)))
    return annotation in (None, ..., torch.Generator) or type(annotation) in (type, abc.ABCMeta) or (
        isinstance(annotation, type) and issubclass(annotation, Tensor)) or (
        isinstance(annotation, type) and issubclass(annotation, AbstractArray) and annotation.array_type is Tensor)


def _look_at(value, quick, args, kwargs) -> None:
    """Have a function's result looked at, beside its arguments, without another call of it."""
    _given.result = value
    try:
        quick(*args, **kwargs)
    finally:
        del _given.result


def _remember(fitted: dict, kinds, kind) -> None:
    if len(fitted) >= MANY or len(fitted.get(kinds, ())) >= MANY:
        fitted.clear()
    fitted.setdefault(kinds, set()).add(kind)


def _speaks_of_arguments(function) -> bool:
    """Whether an axis is an argument's value, "{seq_len}", which only jaxtyping's own decorator knows."""
    return any("{" in repr(annotation) for annotation in function.__annotations__.values())


def _returned(error: BeartypeCallHintReturnViolation):
    """The value that a function returned; beartype's error holds no more than the text of a small one."""
    trace = error.__traceback__
    while trace.tb_next:
        trace = trace.tb_next
        if trace.tb_frame.f_code.co_filename.startswith("<@beartype"):
            return trace.tb_frame.f_locals["__beartype_pith_0"]
    return error.culprits[0]


def _returning(function, value):
    """A function of the same signature that returns this value."""
    def again(*_, **__):
        return value
    again.__signature__ = inspect.signature(function)
    again.__module__, again.__name__, again.__qualname__ = (
        function.__module__, function.__name__, function.__qualname__)
    return again


class CheckedLoader(SourceFileLoader):
    """Loads a file with every function and class of it `checked`; lines and tracebacks stay the file's own.

    lent: what is filled in of it.
    """

    def __init__(self, fullname: str, path: str, lent: Lent | None = None):
        super().__init__(fullname, path)
        self.lent = lent

    def source_to_code(self, data, path, *, _optimize=-1):
        tree = compile(data, path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True, optimize=_optimize)
        if self.lent:
            self.lent.fill_in(tree)
        for node in ast.walk(tree):
            decorator = ast.copy_location(ast.Name("_checked", ast.Load()), node) if hasattr(node, "lineno") else None
            if isinstance(node, ast.FunctionDef):
                node.decorator_list.append(decorator)           # the others may hide the annotations
            elif isinstance(node, ast.ClassDef):
                node.decorator_list.insert(0, decorator)        # a dataclass is made before
        first = 0
        while first < len(tree.body) and (isinstance(tree.body[first], ast.Expr) or (
                isinstance(tree.body[first], ast.ImportFrom) and tree.body[first].module == "__future__")):
            first += 1
        tree.body.insert(first, ast.ImportFrom(__name__, [ast.alias("checked", "_checked")], 0))
        code = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True, optimize=_optimize)
        return self.lent.located(code) if self.lent else code

    def path_stats(self, path):
        raise OSError("no bytecode: two saves within a second would run the first one's code")
