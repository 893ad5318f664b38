"""The site, built once for all its tests, and its pages as they are read without a browser."""

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

from grader.course.chapters import ROOT

LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}
NOT_FETCHED = {"canonical", "next", "prev", "search", "index", "author"}


class Page(HTMLParser):
    """What a page loads, links to, names, and says."""

    def __init__(self, path: Path):
        super().__init__()
        self.path, self.loads, self.links, self.ids, self.images, self.text = path, [], [], set(), [], []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if "id" in found:
            self.ids.add(found["id"])
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag == "img":
            self.images.append(found)
        if tag in LOADED and found.get(LOADED[tag]) and found.get("rel") not in NOT_FETCHED:
            self.loads.append(found[LOADED[tag]])

    def handle_data(self, data):
        self.text.append(data)


def build(out: Path, *options: str) -> Path:
    """Write the site, or skip where what that needs is not there."""
    for package in ("sphinx", "myst_nb", "furo", "sphinx_copybutton", "notfound", "sphinxext"):
        if importlib.util.find_spec(package) is None:
            pytest.skip("the site is built by requirements-site.txt")
    node = [ROOT / "docs" / "node_modules" / name for name in ("katex", "pagefind")]
    if not shutil.which("node") or not all(map(Path.is_dir, node)):
        pytest.skip("the site's equations and its search need node, and npm ci --prefix docs")
    done = subprocess.run([sys.executable, "-m", "docs", str(out), *options], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """Built once, also where pytest-xdist has several processes: the first builds, and the others wait for it."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    try:
        (shared / "building").mkdir()
    except FileExistsError:
        waited = time.monotonic() + 600
        while not (shared / "site").exists() and time.monotonic() < waited:
            if (shared / "skipped").exists():
                pytest.skip((shared / "skipped").read_text("utf-8"))
            time.sleep(0.1)
        assert (shared / "site").exists(), "another process could not build the site"
        return shared / "site"
    try:
        return build(shared / "building" / "site").rename(shared / "site")
    except pytest.skip.Exception as reason:
        (shared / "skipped").write_text(str(reason), "utf-8")
        raise


@pytest.fixture(scope="session")
def pages(site) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html") if "_static" not in path.parts}
