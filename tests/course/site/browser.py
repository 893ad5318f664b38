"""Pages in a headless Chromium, driven by Playwright, which meet no other host than the folder that is served."""

import atexit
import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from docs.book import CHROMIUM

try:
    from playwright.sync_api import Browser, Page, sync_playwright
except ImportError:
    sync_playwright = None

needed = pytest.mark.skipif(not CHROMIUM or sync_playwright is None,
                            reason="pages are looked at in Chromium, by the playwright of requirements-site.txt")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *words) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server on this machine that holds a folder."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


@functools.cache
def _chromium() -> "Browser":
    """One for all tests of this process; it ends with it."""
    driver = sync_playwright().start()
    atexit.register(driver.stop)
    return driver.chromium.launch(executable_path=CHROMIUM, args=[
        "--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"])


@contextmanager
def visit(folder: Path, width: int = 1200, height: int = 800, scripts: bool = True, dark: bool = False,
          touch: bool = False) -> "Iterator[tuple[Page, str, list[str]]]":
    """A new reader's page, the address of the folder, and what the page said to the console, errors among it."""
    with served(folder) as address:
        reader = _chromium().new_context(viewport={"width": width, "height": height}, java_script_enabled=scripts,
                                         color_scheme="dark" if dark else "light", has_touch=touch)
        try:
            page, said = reader.new_page(), []
            page.on("console", lambda message: said.append(message.text))
            page.on("pageerror", lambda error: said.append(str(error)))
            yield page, address, said
        finally:
            reader.close()


def ask(folder: Path, pages: list[Path], script: str, width: int = 1200, scripts: bool = True,
        dark: bool = False) -> tuple[list, list[str]]:
    """What a script, the body of an async function, returns in each page; and what they said to the console."""
    with visit(folder, width, scripts=scripts, dark=dark) as (page, address, said):
        answers = []
        for path in pages:
            page.goto(f"{address}/{path.relative_to(folder).as_posix()}")
            answers.append(page.evaluate(f"async () => {{ {script} }}"))
        return answers, said
