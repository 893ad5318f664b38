"""Pages of a site in a headless Chromium, by its command line alone: what they measure, load and say to the console."""

import html
import json
import re
import subprocess
import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from docs.book import CHROMIUM

WRAPPER = """<!doctype html><link rel=icon href="data:,"><pre id=said></pre>
<iframe id=frame style="border:0;width:%dpx;height:800px" %s></iframe>
<script>
async function go() {
  const frame = document.getElementById("frame"), said = [];
  for (const page of %s) {
    await new Promise(loaded => { frame.onload = loaded; frame.src = page; });
    const inside = frame.contentDocument, view = frame.contentWindow;
    said.push(await (async () => { %s })());
  }
  document.getElementById("said").textContent = JSON.stringify(said);
}
go();
</script>"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *words) -> None:
        pass


@contextmanager
def served(site: Path, folder: Path):
    """The address of a server on this machine that holds the site, in site/, and what lies in folder."""
    if not (folder / "site").exists():
        (folder / "site").symlink_to(site.resolve(), target_is_directory=True)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def ask(site: Path, pages: list[Path], script: str, folder: Path, width: int = 1200,
        scripts: bool = True) -> tuple[list, str]:
    """What a script says in each page, where `inside` is its document and `view` its window; and the console."""
    (folder / "wrapper.html").write_text(WRAPPER % (
        width, "" if scripts else 'sandbox="allow-same-origin"',
        json.dumps([f"site/{page.relative_to(site).as_posix()}" for page in pages]), script), "utf-8")
    with served(site, folder) as address:
        done = dump(f"{address}/wrapper.html", folder)
    answer = re.search(r'<pre id="said">(.+?)</pre>', done.stdout, re.S)
    assert answer, done.stderr[-2000:]
    return json.loads(html.unescape(answer[1])), done.stderr


def dump(address: str, folder: Path) -> subprocess.CompletedProcess:
    """A page as it stands once its scripts have run; stderr holds what they said to the console."""
    return subprocess.run(
        [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}",
         "--enable-logging=stderr", "--virtual-time-budget=120000",
         "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--dump-dom", address],
        capture_output=True, text=True, encoding="utf-8", timeout=600)
