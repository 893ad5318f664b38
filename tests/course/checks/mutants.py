"""Small faults put into the solutions one at a time: which of them does no check notice?

    python -m tests.course.checks.mutants [CHAPTER …] [--sample N] [--seed S] [--jobs 2] [--configurations 200]

A development tool. Each mutant is a submission whose only fault is one edit inside a solution block; all
visible and hidden checks are asked of it, until one fails. One that passes them all is compared with the
reference over random valid configurations (holes.py). Where it differs it is a hole in the checks, told with the
smallest input; else it means the same, and stands in equivalent_mutants.toml with the reason, or is still to settle.
"""

import argparse
import ast
import copy
import random
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from grader.course import chapters
from grader.course.chapters import SOLUTIONS, Chapter
from grader.judge.engine import Grader
from grader.sandbox.setting import Setting
from tests.course.checks.holes import CONFIGURATIONS, Found, Searcher
from tests.course.checks.touched import changed_by, lines_of_checks

EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
TIMEOUT = 8.0               # seconds for one check: an endless loop is caught by that
RENEWED = 40                # mutants that a worker serves before it makes room for a fresh one

COMPARED = {ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE),
            ast.GtE: (ast.Gt, ast.Lt), ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,),
            ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,)}
COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
            ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}
REMOVED = {"to", "float", "long", "contiguous", "detach", "clone"}      # x.to(dtype) becomes x
SYMMETRIC = {"promote_types", "max", "min", "maximum", "minimum"}       # swapping their arguments says nothing
LOOSE = (ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.Lambda)   # need their parentheses


@dataclass(frozen=True)
class Mutant:
    """An edited solution, where the edit is, and its lines before and after."""

    source: str
    part: str               # "KVCache.update"
    line: int
    was: str
    becomes: str


def mutants(source: str) -> list[Mutant]:
    """Every mutant of a solution, in order; no two with the same code."""
    tree, text, lines = ast.parse(source), source.encode(), source.splitlines()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    seen, found = {ast.dump(tree)}, []
    for part, node, replacement in _edits(tree, lines):
        begin, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        begin -= replacement == ""      # a decorator is dropped with its @, which is not part of it
        edited = (text[:begin] + replacement.encode() + text[end:]).decode()
        if (code := ast.dump(ast.parse(edited))) not in seen:
            seen.add(code)
            found.append(Mutant(edited, part, node.lineno, *_changed_lines(lines, edited.splitlines())))
    return found


def _changed_lines(before: list[str], after: list[str]) -> tuple[str, str]:
    """The lines that differ, which lie together, with their spaces made one."""
    first = next(i for i, (one, other) in enumerate(zip(before, after)) if one != other)
    last = next(i for i, (one, other) in enumerate(zip(before[::-1], after[::-1])) if one != other)
    return tuple(" ".join(" ".join(lines[first:len(lines) - last]).split()) for lines in (before, after))


def _edits(tree: ast.Module, lines: list[str]) -> Iterator[tuple[str, ast.AST, str]]:
    """(part, the node, the text in its slot) for every edit inside the solution blocks."""
    inside, open_now = set(), False
    for number, line in enumerate(lines, 1):
        open_now = open_now or line.strip() == "# BEGIN SOLUTION"
        inside |= {number} if open_now else set()
        open_now = open_now and line.strip() != "# END SOLUTION"

    def walk(node, part, function):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            part = f"{part}.{node.name}" if part else node.name
        if isinstance(node, ast.FunctionDef):
            function = node
        if isinstance(node, ast.JoinedStr) or isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return      # the words of a message or a docstring
        if getattr(node, "lineno", 0) in inside:
            yield from ((part, slot, text) for slot, text in _replacements(node, function))
        for decorator in getattr(node, "decorator_list", ()):
            if decorator.lineno in inside:
                yield part, decorator, ""
        for name, field in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list"):
                continue
            for child in field if isinstance(field, list) else [field]:
                if isinstance(child, ast.AST):
                    yield from walk(child, part, function)

    yield from walk(tree, "", None)


def _replacements(node: ast.AST, function) -> Iterator[tuple[ast.AST, str]]:
    """The texts that may stand for a node: each one small fault. A wrong `if` is a wrong test of it."""
    if isinstance(node, (ast.If, ast.While, ast.IfExp)) and not isinstance(node.test, (ast.Compare, ast.UnaryOp)):
        yield node.test, f"(not ({ast.unparse(node.test)}))"
    for new in _faults(node, function):
        said = new if isinstance(new, str) else ast.unparse(ast.fix_missing_locations(new))
        yield node, f"({said})" if isinstance(new, LOOSE) else said


def _faults(node: ast.AST, function) -> Iterator[ast.AST | str]:
    def edited(**fields):
        new = copy.copy(node)
        for name, value in fields.items():
            setattr(new, name, value)
        return new

    def without(items, i):
        return [*items[:i], *items[i + 1:]]

    match node:
        case ast.Compare():
            for i, op in enumerate(node.ops):
                for other in COMPARED[type(op)]:
                    yield edited(ops=[*node.ops[:i], other(), *node.ops[i + 1:]])
        case ast.BinOp() | ast.AugAssign() if type(node.op) in COMPUTED:
            yield edited(op=COMPUTED[type(node.op)]())
        case ast.BoolOp():
            yield edited(op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
            yield from (edited(values=without(node.values, i)) for i in range(len(node.values)))
        case ast.UnaryOp(op=ast.USub() | ast.Not()):
            yield node.operand
        case ast.Constant(value=bool()):
            yield repr(not node.value)
        case ast.Constant(value=int() | float() as value):
            yield from map(repr, (value + 1, value - 1, value * 2, type(value)(0)))
        case ast.Subscript(slice=ast.Slice() | ast.Tuple()):
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            for i, part in enumerate(parts):
                for moved in _moved(part) if isinstance(part, ast.Slice) else ():
                    new = [*parts[:i], moved, *parts[i + 1:]]
                    yield edited(slice=ast.Tuple(new, ast.Load()) if isinstance(node.slice, ast.Tuple) else moved)
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            for i, loop in enumerate(node.generators):
                bare = ast.comprehension(loop.target, loop.iter, [], loop.is_async)
                yield edited(generators=[*node.generators[:i], bare, *node.generators[i + 1:]])
        case ast.Call():
            if getattr(node.func, "attr", getattr(node.func, "id", "")) not in SYMMETRIC:
                yield from (edited(args=[*node.args[:i], node.args[i + 1], node.args[i], *node.args[i + 2:]])
                            for i in range(len(node.args) - 1))
            yield from (edited(keywords=without(node.keywords, i)) for i in range(len(node.keywords)))
            if isinstance(node.func, ast.Attribute) and node.func.attr in REMOVED:
                yield node.func.value
        case ast.Return(value=ast.Call() as call):
            yield from (ast.Return(arg) for arg in call.args[:1] if not isinstance(arg, ast.Starred))
            if isinstance(call.func, ast.Attribute):
                yield ast.Return(call.func.value)
    if isinstance(node, (ast.Raise, ast.Expr, ast.AugAssign, ast.If, ast.Delete, ast.Break, ast.Continue)) or (
            isinstance(node, ast.Assign) and function and _known_before(node, function)):
        yield "pass"


def _moved(part: ast.Slice) -> Iterator[ast.Slice]:
    """A slice whose one end is off by one; a constant end is moved as a constant."""
    one = ast.Constant(1)
    for name, missing in (("lower", one), ("upper", ast.UnaryOp(ast.USub(), one))):
        end = getattr(part, name)
        ends = [missing] if end is None else [] if isinstance(end, ast.Constant) else [
            ast.BinOp(end, ast.Add(), one), ast.BinOp(end, ast.Sub(), one)]
        for moved in ends:
            yield ast.Slice(**{"lower": part.lower, "upper": part.upper, "step": part.step, name: moved})


def _known_before(node: ast.Assign, function: ast.FunctionDef) -> bool:
    """Whether what is assigned has a value without it: else dropping it is a NameError, which says nothing."""
    names = [name for target in node.targets for name in ast.walk(target)
             if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)]
    known = {arg.arg for arg in [*function.args.args, *function.args.kwonlyargs]} | {
        name.id for name in ast.walk(function)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store) and name.lineno < node.lineno}
    return all(name.id in known for name in names)


def fates(chapter: Chapter, chosen: list[Mutant]) -> dict[Mutant, str]:
    """The check that catches each mutant and what it said, or "" where none does."""
    found, lines = {}, lines_of_checks(chapter)
    with Grader(Setting(timeout=TIMEOUT)) as grader, tempfile.TemporaryDirectory() as scratch:
        asked = [check for check in grader.checks(chapter, hidden=True) if not check.lacking]
        slot = grader.submission(chapter, SOLUTIONS).slot
        for number, mutant in enumerate(chosen):
            if number % RENEWED == 0:
                slot.close()
            folder = Path(scratch) / str(number)
            folder.mkdir()
            (folder / f"{chapter.stem}.py").write_text(mutant.source, "utf-8")
            candidate, found[mutant] = grader.submission(chapter, folder, hidden=True), ""
            candidate.slot = slot
            may = changed_by(mutant.source, chapter, lines) or asked
            for check in (check for check in asked if check in may):
                if (word := grader.verdict(candidate, check, name=False).word) != "passed":
                    found[mutant] = f"{check.name}: {word}"
                    asked.sort(key=lambda other: other != check)      # asked first the next time
                    break
        slot.close()
    return found


def compared(chapter: Chapter, survivors: list[Mutant], configurations: int) -> dict[Mutant, Found]:
    """What random valid configurations say of mutants that passed every check."""
    if not survivors:
        return {}
    with Searcher(chapter, configurations) as searcher:
        return {mutant: searcher.find(mutant.source, mutant.part) for mutant in survivors}


def hunt(chapter: Chapter, sample: int | None, seed: int, jobs: int, configurations: int) -> bool:
    """Print what becomes of a chapter's mutants; whether nothing is left to settle."""
    def key(mutant):
        return mutant.part, mutant.was, mutant.becomes

    start, everything = time.monotonic(), mutants(chapter.solution.read_text("utf-8"))
    entries = tomllib.loads(EQUIVALENT.read_text("utf-8")).get("mutant", [])
    listed = {(e["part"], e["was"], e["becomes"]) for e in entries if e["chapter"] == chapter.number}
    chosen = random.Random(seed).sample(everything, min(len(everything), sample or len(everything)))
    fate: dict[Mutant, str] = {}
    lines_of_checks(chapter)        # once, before each thread wants to know
    with ThreadPoolExecutor(jobs) as pool:
        for some in pool.map(lambda i: fates(chapter, chosen[i::jobs]), range(jobs)):
            fate |= some
    survivors = [mutant for mutant in everything if fate.get(mutant) == ""]
    found = compared(chapter, survivors, configurations)
    holes = [mutant for mutant in survivors if found[mutant].differs]
    equal = [mutant for mutant in survivors if not found[mutant].differs]
    new = [mutant for mutant in equal if key(mutant) not in listed]
    print(f"{chapter.stem}: {len(chosen)} of {len(everything)} mutants, {len(chosen) - len(survivors)} caught "
          f"({sum(said.endswith('timeout') for said in fate.values())} by time), {len(equal) - len(new)} equivalent, "
          f"{len(holes)} holes, {len(new)} to settle; {time.monotonic() - start:.0f} s")
    for mutant in holes:
        one, but = found[mutant], ", though listed as equivalent" * (key(mutant) in listed)
        print(f"  {mutant.part}, line {mutant.line}: a hole{but}\n    - {mutant.was}\n    + {mutant.becomes}\n"
              f"    {one.differs}, in {one.scenario}:", *one.told, sep="\n      ")
    for mutant in new:
        print(f"  {mutant.part}, line {mutant.line}: the same in {found[mutant].tried} configurations"
              f"\n    - {mutant.was}\n    + {mutant.becomes}")
    if parts := sorted({mutant.part for mutant in survivors if not found[mutant].drawn}):
        print(f"  not drawn: {', '.join(parts)}")
    wrong = [(mutant, said) for mutant, said in fate.items() if said and key(mutant) in listed]
    for mutant, said in wrong:
        print(f"  listed as equivalent and caught by {said}: {mutant.part}: {mutant.becomes}")
    gone = sorted(listed - set(map(key, everything)))
    for part, was, becomes in gone:
        print(f"  listed as equivalent and no longer there: {part}: {was} → {becomes}")
    return not (holes or new or wrong or gone)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.course.checks.mutants")
    parser.add_argument("chapters", nargs="*", metavar="CHAPTER")
    parser.add_argument("--sample", type=int, help="at most this many mutants of a chapter")
    parser.add_argument("--seed", type=int, default=0, help="which ones a sample takes")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--configurations", type=int, default=CONFIGURATIONS, help="how many a survivor is compared in")
    given = parser.parse_args()
    wanted = [chapters.find(name) for name in given.chapters] or chapters.chapters()
    raise SystemExit(not all([hunt(chapter, given.sample, given.seed, given.jobs, given.configurations)
                              for chapter in wanted]))


if __name__ == "__main__":
    main()
