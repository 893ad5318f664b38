"""What a submission raised, in the words of a student where we know better ones."""

import ast
import inspect
import itertools
import re
import types

from grader.course.loader import PACKAGE

MAX_MESSAGE = 1_000         # characters of an exception's message


def signature(error: TypeError, said: str) -> tuple[str, str]:
    """(what a call that does not fit a function should say, the function's name)."""
    trace = error.__traceback__
    while trace is not None:        # the wrapper that checks shapes holds the function
        function = trace.tb_frame.f_locals.get("fn")
        if trace.tb_frame.f_code.co_name in ("checked_call", "wrapped_fn") and inspect.isfunction(function):
            names = [name for name in inspect.signature(function).parameters if name != "self"]
            called = function.__qualname__
            said = f"{called} {said.removeprefix(f'{called}() ').removeprefix(f'{called} ')}"
            return f"{said}; yours takes {', '.join(names) or 'nothing'}", called
        trace = trace.tb_next
    return said, ""


def message(error: BaseException, chapter: str) -> str:
    """An exception's words, in the words of a student where we know better ones."""
    kind = type(error)
    try:
        text = str(error)
    except BaseException:
        return "(its __str__ raised an exception of its own)"
    if kind is AttributeError and type(error.obj) is types.ModuleType \
            and error.obj.__name__ == f"{PACKAGE}.{chapter}":
        return f"{error.name} is missing from {chapter}.py"
    if kind.__name__ == "TypeCheckError":
        return _shapes(text)
    if kind is SystemExit:
        return f"the code ended the program with sys.exit({text})"
    if kind is EOFError and not text or text == "EOF when reading a line":
        return "input() cannot be used here: nobody is there to type"
    if isinstance(error, SyntaxError) and error.lineno:
        return str(error.msg)
    if "does not require grad" in text:
        return f"{text}: the result is cut off from the graph (.data, .detach() or no_grad?)"
    return text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + " …"


def operation(trace: types.TracebackType, source: str) -> str:
    """What the code was doing there: "/", "torch.stack", ".view", "[]", or "" where that cannot be told."""
    spots = trace.tb_frame.f_code.co_positions()
    first, last, start, end = next(itertools.islice(spots, trace.tb_lasti // 2, None), (None,) * 4)
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    for node in nodes:
        if isinstance(node, (ast.expr, ast.stmt)) and (
                node.lineno, node.end_lineno, node.col_offset, node.end_col_offset) == (first, last, start, end):
            return _operation(node)
    return ""


def _operation(node: ast.AST) -> str:
    if isinstance(node, (ast.BinOp, ast.AugAssign)):
        return type(node.op).__name__
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        return name if re.fullmatch(r"(torch|math|nn|F|einops)[\w.]*|\w+", name) else _operation(node.func)
    if isinstance(node, ast.Attribute):
        return f".{node.attr}"
    return type(node).__name__


def _shapes(text: str) -> str:
    """jaxtyping's page-long message as one sentence, axis sizes behind it."""
    where = re.search(rf"(parameters|return value) of {PACKAGE}\.\w+\.([\w.]+)\.\n", text)
    what = re.search(r"Actual value: (.*?)\nExpected type: (?:<class )?['\"]?(.*?)['\"]?>?\.\n", text, re.S)
    if not where or not what:
        return " ".join(text.split())[:MAX_MESSAGE]
    name = re.search(r"typechecking parameter '(\w+)'", text)
    value, wanted = (text if len(text := " ".join(what[i].split())) <= 80 else f"{text[:79]}…" for i in (1, 2))
    sizes = re.findall(r"^(\w+)=(?:torch\.Size\()?(.*?)\)?$", text.partition("as follows.\n")[2], re.M)
    known = f" (with {', '.join(f'{axis} = {size}' for axis, size in sizes)})" if sizes else ""
    if name:
        return f"{where[2]} was given {name[1]} = {value}, but takes {wanted}{known}"
    return f"{where[2]} returned {value}, but its signature says {wanted}{known}"
