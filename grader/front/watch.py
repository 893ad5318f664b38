"""Grade at every save, with torch already in memory."""

import contextlib
import queue
import sys
import threading
import time

from watchfiles import watch

from grader.course import chapters, stubs
from grader.course.chapters import Chapter
from grader.front import report
from grader.front.screen import Screen
from grader.judge.engine import Grader
from grader.sandbox.process import Stopped

HELP = "Waiting for a save. Press Enter to check again, q or Ctrl-C to leave."


def run(grader: Grader, chosen: list[Chapter], screen: Screen | None = None) -> None:
    """Grade chapters whenever their files change, until the reader leaves.

    File events only wake the loop sooner. What counts is what the files hold, looked at twice a
    second, so that a folder without events (a network drive, a container) works too.
    """
    screen, stop = screen or Screen(), threading.Event()
    keys = _keys(stop)
    screen.text(f"Watching {report.shown(chapters.EXERCISES)}. This is how it stands:")
    with contextlib.suppress(KeyboardInterrupt):
        seen = _settled(grader, chosen, chosen, screen)
        if len(chosen) == 1:
            grader.warm(chosen[0])
        screen.text(HELP)
        for _ in watch(chapters.EXERCISES, debounce=50, step=10, rust_timeout=500, stop_event=stop,
                       yield_on_timeout=True, raise_interrupt=True, ignore_permission_denied=True):
            now = contents(chosen)
            changed = [chapter for chapter in chosen if now[chapter] != seen[chapter]]
            with contextlib.suppress(queue.Empty):
                keys.get_nowait()
                changed = changed or chosen
            seen = now
            if changed:
                seen = _settled(grader, changed, chosen, screen)
                screen.text(HELP)


def _settled(grader: Grader, changed: list[Chapter], chosen: list[Chapter], screen: Screen) -> dict:
    """Grade and show what has changed, anew for each save meanwhile; returns what was graded."""
    while True:
        seen = contents(chosen)
        try:
            for chapter in changed:
                show(grader, chapter, screen, stop=lambda: contents(chosen) != seen)    # noqa: B023
                if chapter != changed[-1]:
                    grader.forget(chapter)
            return seen
        except Stopped:
            now = contents(chosen)
            changed = [c for c in chosen if c in changed or now[c] != seen[c]]


def contents(chosen: list[Chapter]) -> dict[Chapter, list[bytes]]:
    """What each chapter's verdicts depend on: its file and, once begun, those it builds on."""
    def read(chapter: Chapter) -> bytes:
        return chapter.exercise.read_bytes() if chapter.exercise.exists() else b""
    return {chapter: [read(chapter)] + [read(other) for other in chapters.needs(chapter)
                                        if stubs.started(chapter)] for chapter in chosen}


def show(grader: Grader, chapter: Chapter, screen: Screen, stop=None) -> None:
    """Grade one chapter and print its row and first failure."""
    verdicts = list(grader.grade(chapter, waited_for=True, stop=stop,
                                 progress=screen.progress(report.title(chapter))))
    screen.text(f"\n{time.strftime('%H:%M:%S')}  {report.row(chapter, verdicts)}")
    if filled_in := report.lent({chapter: verdicts}):
        screen.text(filled_in)
    if failed := report.first_failure(verdicts):
        screen.text("\n" + report.failure(failed, grader.setting))
    elif all(verdict.word == "passed" for verdict in verdicts):
        screen.text(report.next_step({chapter: verdicts}))


def _keys(stop: threading.Event) -> queue.Queue:
    """Lines typed, or sent by a program: "q" sets `stop`, anything else asks for a check."""
    typed: queue.Queue = queue.Queue()

    def read():
        for line in sys.stdin:
            if line.strip().lower() == "q":
                return stop.set()
            typed.put(line)

    if sys.stdin:
        threading.Thread(target=read, daemon=True).start()
    return typed
