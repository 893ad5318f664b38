"""Which names a piece of code uses, and means by them what its module means."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Use:
    """A name where it is used; column counts bytes. signature: nothing looks at it when the code runs."""

    name: str
    line: int
    column: int
    signature: bool


def uses(node: ast.AST, hidden: frozenset[str] = frozenset(), signature: bool = False) -> Iterator[Use]:
    """Every use of a name of the module, and at the module's level where it is given a meaning.

    hidden: what the functions around it call something else by.
    """
    match node:
        case ast.Name():
            if node.id not in hidden:
                yield Use(node.id, node.lineno, node.col_offset, signature)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            arguments, inside = node.args, hidden | _own(node)
            for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs,
                             *filter(None, [arguments.vararg, arguments.kwarg])]:
                if argument.annotation:
                    yield from uses(argument.annotation, hidden, True)
            for outside in [*arguments.defaults, *filter(None, arguments.kw_defaults),
                            *getattr(node, "decorator_list", [])]:
                yield from uses(outside, hidden, signature)
            if getattr(node, "returns", None):
                yield from uses(node.returns, hidden, True)
            for statement in node.body if isinstance(node.body, list) else [node.body]:
                yield from uses(statement, inside, signature)
        case ast.ClassDef():
            own = {name.id for statement in node.body if not hasattr(statement, "name")
                   for name in ast.walk(statement) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)}
            for outside in [*node.bases, *node.keywords, *node.decorator_list]:
                yield from uses(outside, hidden, signature)
            for statement in node.body:
                # what a class binds, its methods do not see
                yield from uses(statement, hidden if hasattr(statement, "name") else hidden | own, signature)
        case ast.AnnAssign():
            yield from uses(node.annotation, hidden, True)
            for part in filter(None, [node.target, node.value]):
                yield from uses(part, hidden, signature)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from uses(child, hidden, signature)


def _own(function: ast.AST) -> frozenset[str]:
    """The names that a function binds: its arguments, and what it assigns, imports or defines."""
    found, away = {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}, set()
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            found.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node is not function:
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            found.add(node.name)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            away |= set(node.names)
    return frozenset(found - away)
