"""What a check imports besides what its process was forked with: seconds and 100 MB in every worker, unseen."""

import json
import os
import subprocess
import sys

from grader.course import chapters

# tokenizers brings 14 modules, jinja2 23; torch's meta kernels 486 with sympy, its compiler 807.
MOST = 25
PROGRAM = """
import importlib, json, os, sys
from grader.course import chapters, checks
from grader.judge import referee
from grader.sandbox import worker, zygote
from grader.sandbox.setting import Setting, scan_request

zygote.warm()
folders = {other.stem: str(chapters.SOLUTIONS) for other in chapters.chapters()}
for chapter in chapters.chapters():
    if os.fork():
        assert os.wait()[1] == 0, chapter.stem
        continue
    asked = [check for hidden in (False, True) for check in checks.collect(chapter.tests(hidden), chapter.stem, hidden)
             if not check.lacking]
    about = {check.needs for check in asked if check.needs}
    for package in about:
        importlib.import_module(package)
    loaded = worker.LoadedChapter(**scan_request(chapter, folders, chapters.SOLUTIONS, Setting()))
    before = set(sys.modules)
    assert not loaded.scan() and not loaded.load()
    found = {"loading": sorted(set(sys.modules) - before)}
    for check in asked:
        before = set(sys.modules)
        assert "answer" in loaded.ask(**Setting().question(check))[0], check.name
        found[check.name] = sorted(name for name in set(sys.modules) - before if name.partition(".")[0] not in about)
    print(json.dumps([chapter.stem, found]), flush=True)
    os._exit(0)
"""


def test_no_check_imports_much():
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=chapters.ROOT, text=True, capture_output=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    found = dict(json.loads(line) for line in done.stdout.splitlines())
    assert list(found) == [chapter.stem for chapter in chapters.chapters()]
    for stem, by_check in found.items():
        assert len(by_check) > 1
        for name, modules in by_check.items():
            own = [module for module in modules if not module.startswith(("exercises", "given"))]
            assert len(own) <= MOST, f"{stem}, {name}: imports {len(own)} modules, such as {', '.join(own[:8])}"


def test_the_meta_device_would_be_seen():
    """Where one of these goes, MOST holds nothing."""
    done = subprocess.run([sys.executable, "-c", "import sys, torch; before = set(sys.modules); "
                           "torch.arange(3, device='meta'); print(len(set(sys.modules) - before))"],
                          text=True, capture_output=True)
    assert int(done.stdout) > 10 * MOST
