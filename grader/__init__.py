"""Runs a check on two implementations and compares what comes back.

The rooms, each on top of those before it:

course/      what the course's files say: chapters, stubs, checks, hints, the inputs that a check draws
sandbox/     processes that run what is not trusted, and what passes between them
judge/       is this answer right; if not, what is it
front/       how one asks, and what one sees: the command line's texts, watch, notebooks, pytest, a newer edition
author/      adding a chapter, leaving one out
classroom/   what only an instructor uses: intake, run, output, edition, platforms

The way of one check, `python -m grader check 03`:

1. `__main__` makes a `judge.engine.Grader`, which starts a zygote (`sandbox.zygote`): a process with torch in memory.
2. The zygote forks the referee (`judge.referee`), which loads the reference and collects the checks; the front end
   speaks to it through `judge.answer_key`. Where forking is not safe (`sandbox.launcher`) each process starts afresh.
3. `sandbox.submission` has the zygote fork a worker (`sandbox.worker`), which looks for what may not be borrowed
   (`sandbox.forbidden`), imports the student's file (`course.loader`), runs the check on inputs drawn from a seed
   (`course.draw`), and sends what came out as a tree and bytes (`sandbox.wire`, `sandbox.frames`).
4. The referee has asked the reference the same meanwhile. It decodes the answer without believing it, and compares
   (`judge.compare`).
5. Where they differ, `judge.mistakes` has workers ask the known mistakes (`judge.edits`), or two of them made together
   (`judge.pairs`), and the referee says which of them answers alike. It says too what the answer has in common with
   the right one (`judge.resemblance`).
6. `front.report` makes words of the verdict (`judge.verdict`).

In an edition without solutions a record (`judge.record`) stands for the reference and its mistakes.
"""

from grader.course.checks import (
    accepts,
    devices,
    dtypes,
    needs,
    points,
    raises,
    shape,
    shapes,
    shares_memory,
    tolerance,
)

__all__ = ["accepts", "check", "devices", "dtypes", "needs", "points", "raises", "shape", "shapes", "shares_memory",
           "tolerance"]


def __getattr__(name: str):
    """`check` is for notebooks; checks and workers start without what it needs."""
    if name == "check":
        from grader.front.notebook import check
        return check
    raise AttributeError(f"module 'grader' has no attribute {name!r}")
