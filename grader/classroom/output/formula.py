"""What a formula for lateness gives."""

import ast
import math
import operator

_BINARY = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
           ast.Div: operator.truediv, ast.Mod: operator.mod, ast.Pow: operator.pow}
_CALLS = {"min": min, "max": max}


def calculate(formula: str, **values: float) -> float:
    """The value of an arithmetic formula; a ValueError where it is none, or has no finite value.

    >>> calculate("points * 0.9 ** days", points=10, days=1)
    9.0
    """
    def value(node) -> float:
        match node:
            case ast.Constant(value=int() | float() as number) if type(number) is not bool:
                return float(number)
            case ast.Name(id=name) if name in values:
                return float(values[name])
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return _BINARY[type(op)](value(left), value(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
            case ast.Call(func=ast.Name(id=name), args=[_, _, *_] as arguments, keywords=[]) if name in _CALLS:
                return _CALLS[name](map(value, arguments))
        raise ValueError(f"{ast.unparse(node)!r} is not arithmetic on {', '.join(values)}")
    try:
        result = value(ast.parse(formula, mode="eval").body)
    except (SyntaxError, ArithmeticError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"the formula {formula!r} has no value: {error}") from None
    if isinstance(result, complex) or not math.isfinite(result):
        raise ValueError(f"the formula {formula!r} has no finite value for {values}")
    return result
