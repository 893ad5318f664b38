"""Grade at every save, with torch already in memory."""

import contextlib
import queue
import sys
import threading
import time

from watchfiles import watch

from grader import chapters, report
from grader.chapters import Chapter
from grader.engine import Grader
from grader.screen import Screen

HELP = "Waiting for a save. Press Enter to check again, q or Ctrl-C to leave."


def run(grader: Grader, chosen: list[Chapter], screen: Screen | None = None) -> None:
    """Grade chapters whenever their files change, until the reader leaves.

    File events only wake the loop sooner. What counts is what the files hold, looked at twice a
    second, so that a folder without events (a network drive, a container) works too.
    """
    screen, stop = screen or Screen(), threading.Event()
    keys = _keys(stop)
    seen = contents(chosen)
    screen.text(f"Watching {report.shown(chapters.EXERCISES)}. {HELP}")
    if len(chosen) == 1:
        grader.warm(chosen[0])
    with contextlib.suppress(KeyboardInterrupt):
        for _ in watch(chapters.EXERCISES, debounce=50, step=10, rust_timeout=500, stop_event=stop,
                       yield_on_timeout=True, raise_interrupt=True, ignore_permission_denied=True):
            now = contents(chosen)
            changed = [chapter for chapter in chosen if now[chapter] != seen[chapter]]
            with contextlib.suppress(queue.Empty):
                keys.get_nowait()
                changed = changed or chosen
            seen = now
            for chapter in changed:
                show(grader, chapter, screen)
            if changed:
                screen.text(HELP)


def contents(chosen: list[Chapter]) -> dict[Chapter, list[bytes]]:
    """What each chapter's verdicts depend on: its file and, once begun, those it builds on."""
    def read(chapter: Chapter) -> bytes:
        return chapter.exercise.read_bytes() if chapter.exercise.exists() else b""
    return {chapter: [read(chapter)] + [read(other) for other in chapters.needs(chapter)
                                        if chapters.started(chapter)] for chapter in chosen}


def show(grader: Grader, chapter: Chapter, screen: Screen) -> None:
    """Grade one chapter and print its row and first failure."""
    verdicts = list(grader.grade(chapter, name_all=False))
    screen.text(f"\n{time.strftime('%H:%M:%S')}  {report.row(chapter, verdicts)}")
    if failed := report.first_failure(verdicts):
        screen.text("\n" + report.failure(failed, grader.setting))
    elif all(verdict.word == "passed" for verdict in verdicts):
        screen.text(report.next_step({chapter: verdicts}))


def _keys(stop: threading.Event) -> queue.Queue:
    """Lines typed at the terminal: "q" sets `stop`, anything else asks for a check."""
    typed: queue.Queue = queue.Queue()

    def read():
        for line in sys.stdin:
            if line.strip().lower() == "q":
                return stop.set()
            typed.put(line)

    if sys.stdin and sys.stdin.isatty():
        threading.Thread(target=read, daemon=True).start()
    return typed
