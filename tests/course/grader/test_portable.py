"""What a student runs needs nothing that Linux, macOS or Windows lacks.

The last tests run on all three (`-k here`), and on Linux once more in processes that lack what Windows lacks.
"""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from grader.course import chapters, checks, stubs
from grader.course.chapters import ROOT, TESTS
from tests.course.stubs import fresh

LINEAR = chapters.find("linear")
VISIBLE = len(checks.collect(LINEAR.tests(), LINEAR.stem, hidden=False))

# By the notes on availability in Python's documentation: what Windows lacks, and some that macOS lacks too.
LACKING = {
    "os": """fork forkpty register_at_fork setsid getsid setpgid getpgid getpgrp killpg wait wait3 wait4 waitid waitpid
        WNOHANG WUNTRACED WIFEXITED WIFSIGNALED WEXITSTATUS WTERMSIG getuid geteuid getgid getegid getgroups setuid
        setgid setresuid initgroups uname nice getpriority setpriority chroot chown lchown fchown fchmod mkfifo mknod
        openpty posix_spawn posix_spawnp sched_getaffinity sched_setaffinity sched_yield getloadavg sysconf confstr
        ctermid ttyname pread pwrite preadv pwritev readv writev sendfile lockf posix_fallocate posix_fadvise pipe2
        set_blocking get_blocking statvfs fstatvfs sync fdatasync memfd_create eventfd pidfd_open getrandom
        setns unshare copy_file_range splice getxattr setxattr process_cpu_count
        O_NONBLOCK O_CLOEXEC O_PATH O_NOFOLLOW O_DIRECTORY O_SYNC O_TMPFILE""",
    "signal": """SIGKILL SIGHUP SIGALRM SIGUSR1 SIGUSR2 SIGCHLD SIGSTOP SIGCONT SIGTSTP SIGQUIT SIGPIPE SIGBUS SIGTRAP
        alarm setitimer getitimer pause pthread_kill pthread_sigmask sigpending sigwait sigwaitinfo sigtimedwait
        siginterrupt""",
    "select": "poll epoll kqueue devpoll POLLIN POLLHUP",
    "socket": "send_fds recv_fds AF_UNIX SCM_RIGHTS CMSG_LEN AF_NETLINK",
    "time": "clock_gettime clock_settime clock_getres pthread_getcpuclockid tzset",
    "mmap": "MAP_SHARED MAP_PRIVATE MAP_ANONYMOUS PROT_READ PROT_WRITE PROT_EXEC MADV_DONTNEED",
}
NAMES = {f"{module}.{name}" for module, names in LACKING.items() for name in names.split()}
MODULES = {"resource", "fcntl", "pwd", "grp", "termios", "tty", "pty", "syslog", "posix", "curses", "readline", "crypt"}
ARGUMENTS = {"preexec_fn", "pass_fds", "process_group"}       # of subprocess.Popen
METHODS = {"symlink_to", "hardlink_to", "owner", "lchmod"}    # of a path; a link needs rights on Windows
PLACES = ("/proc", "/dev/", "/tmp", "/sys/", "/usr", "/etc/")

# Where such a thing is used all the same, and why that does no harm.
ALL = {"..."}
GUARDED = {
    "grader/sandbox/zygote.py": (ALL, "what forks is started on Linux alone"),
    "grader/sandbox/jail.py": (ALL, "the walls are Linux's; jail.missing says so elsewhere"),
    "grader/sandbox/launcher.py": ({"socket.send_fds", "socket.recv_fds", "pass_fds", "os.killpg", "signal.SIGKILL"},
                                   "the line to a zygote; a group is killed where the system knows groups"),
    "grader/sandbox/process.py": ({"select.poll", "select.POLLIN", "os.set_blocking", "/proc", "os.sysconf",
                                   "/proc/self/fdinfo/", "os.sched_getaffinity", "os.sched_setaffinity"},
                                  "behind POLLS; a clock without /proc shows the wall's time; keep_to asks first"),
    "grader/sandbox/worker.py": ({"resource", "/proc/self/status"}, "limit_memory goes on without either"),
    "grader/front/provenance.py": ({"/proc/cpuinfo"}, "processor goes on without it"),
}


def _students_files() -> list[Path]:
    """What an edition holds and a student's machine runs."""
    return [*chapters.engine_files(), *sorted(ROOT.glob("exercises/*.py")), *sorted(ROOT.glob("given/**/*.py")),
            *(chapter.tests() for chapter in chapters.chapters()),
            *(chapter.notebook for chapter in chapters.chapters())]


def _source(path: Path) -> str:
    """The code of a file, or of a notebook's cells."""
    if path.suffix != ".ipynb":
        return path.read_text("utf-8")
    cells = json.loads(path.read_text("utf-8"))["cells"]
    lines = [line for cell in cells if cell["cell_type"] == "code" for line in [*cell["source"], "\n"]]
    return "".join("pass\n" if line.startswith(("%", "!")) else line for line in lines)


def _lacking(source: str) -> set[str]:
    """What a source uses that not every system has."""
    tree, found = ast.parse(source), set()
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}      # docstrings
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if f"{module}.{name}" in NAMES:
                found.add(f"{module}.{name}")
            case ast.Attribute(attr=name) if name in METHODS:
                found.add(name)
            case ast.Import(names=names):
                found |= {name.name for name in names} & MODULES
            case ast.ImportFrom(module=module, names=names):
                found |= {module} & MODULES | {f"{module}.{name.name}" for name in names} & NAMES
            case ast.keyword(arg=name) if name in ARGUMENTS:
                found.add(name)
            case ast.Constant(value=str(text)) if text.startswith(PLACES) and id(node) not in texts:
                found.add(text)
    return found


def _without_encoding(source: str) -> set[int]:
    """The lines that read or write text in an encoding that depends on the machine."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or any(keyword.arg == "encoding" for keyword in node.keywords):
            continue
        given = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        match node.func:
            case ast.Name(id="open") | ast.Attribute(attr="open", value=ast.Name(id="path" | "file")):
                said = given + [k.value.value for k in node.keywords
                                if k.arg == "mode" and isinstance(k.value, ast.Constant)]
                if not any(isinstance(mode, str) and "b" in mode and len(mode) < 4 for mode in said):
                    found.add(node.lineno)
            case ast.Attribute(attr="read_text" | "write_text") if "utf-8" not in given:
                found.add(node.lineno)
            case ast.Attribute(value=ast.Name(id="subprocess")) if any(k.arg == "text" for k in node.keywords):
                found.add(node.lineno)
    return found


@pytest.mark.parametrize("path", _students_files(), ids=chapters.shown)
def test_what_students_run_uses_nothing_that_a_system_lacks(path):
    allowed, _ = GUARDED.get(chapters.shown(path), (set(), ""))
    assert allowed is ALL or _lacking(_source(path)) == allowed
    assert allowed is ALL or path.suffix == ".ipynb" or path.parent == TESTS or not _without_encoding(_source(path))


def test_what_lessons_read_is_the_same_in_every_encoding():
    """A lesson opens its tables in the machine's own encoding, so that its code stays short."""
    tables = [*ROOT.glob("assets/evidence/*.csv"), ROOT / "assets/pocket/config.json", ROOT / "LICENSE"]
    assert not [path.name for path in tables if not path.read_bytes().isascii()]


@pytest.mark.parametrize("source, found", [
    ("import os\nos.fork()", {"os.fork"}), ("from signal import SIGKILL", {"signal.SIGKILL"}),
    ("import resource", {"resource"}), ("from fcntl import flock", {"fcntl"}), ("f(pass_fds=[1])", {"pass_fds"}),
    ("open('/proc/meminfo')", {"/proc/meminfo"}), ('"""/proc is not read."""', set()), ("os.getpid()", set())])
def test_what_is_lacking_is_found(source, found):
    assert _lacking(source) == found


def test_a_file_is_not_opened_in_the_machines_own_encoding():
    assert _without_encoding("open('a')\nopen('a', 'rb')\nopen('a', encoding='utf-8')\np.read_text()\n") == {1, 4}
    assert _without_encoding("subprocess.run(['git'], text=True)\np.write_text(text, 'utf-8')") == {1}


# -- as a student's machine runs it -----------------------------------------------------------------

# What Python runs as it starts: it takes away, in every process, what Windows lacks. What subprocess, numpy and torch
# call, as they are built here, stays; torch and rich would ask Windows itself, so they do not see "win32".
KEPT = ("waitpid", "WNOHANG", "uname", "register_at_fork")
PREAMBLE = f"""
import multiprocessing.util, os, select, signal, socket, subprocess, sys
for module, names in {LACKING!r}.items():
    for name in names.split():
        if module in ("os", "signal", "select", "socket") and name not in {KEPT}:
            vars(sys.modules[module]).pop(name, None)
sys.modules.update(dict.fromkeys({sorted(MODULES - {"posix", "readline"})!r}))
if "fresh" not in sys.orig_argv:
    import rich.console
    sys.platform = "win32"
"""


@pytest.fixture(params=["here", pytest.param("as on Windows", marks=pytest.mark.skipif(
    sys.platform != "linux", reason="Linux plays Windows; here is another system"))])
def python(request, tmp_path):
    """Runs Python, on this system or on what looks like Windows."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    if request.param != "here":
        python, taskkill = tmp_path / "python", tmp_path / "bin" / "taskkill"
        for folder in (python, taskkill.parent):
            folder.mkdir()
        (python / "sitecustomize.py").write_text(PREAMBLE, "utf-8")
        taskkill.write_text('#!/bin/sh\n[ "$1 $2 $3" = "/F /T /PID" ] && kill -KILL "-$4"\n', "utf-8")
        taskkill.chmod(0o755)
        environment |= {"PYTHONPATH": str(python), "PYTHONUTF8": "0",
                        "PATH": os.pathsep.join([str(taskkill.parent), environment["PATH"]])}

    def run(*arguments, typed: str = ""):
        return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, input=typed,
                              encoding="cp1252", timeout=280, env={**environment, "PYTHONIOENCODING": "cp1252:strict"})
    return run


@pytest.fixture
def handed_in(tmp_path):
    """Writes a submission to chapter 03: the reference with one thing in the place of another."""
    def write(find: str, replace: str) -> str:
        source = LINEAR.solution.read_text("utf-8")
        assert source.count(find) == 1
        folder = tmp_path / "My Files"
        folder.mkdir()
        (folder / LINEAR.solution.name).write_text(source.replace(find, replace), "utf-8")
        return str(folder)
    return write


def test_the_reference_passes(python):
    done = python("-m", "grader", "check", "03", "--submission", "solutions")
    assert done.returncode == 0 and "all passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("replace, word, said", [
    ("print('é')\n    return batch *", "wrong", "printed é"),
    ("raise KeyError('é')\n    return 2 * batch *", "error", "KeyError: 'é'"),
    ("while True: pass\n    return 2 * batch *", "timeout", "while True: pass"),
    ("import os; os.abort()\n    return 2 * batch *", "crashed", "the process ")],
    ids=["wrong", "raises", "hangs", "crashes"])
def test_a_fault_costs_its_own_check_alone(python, handed_in, replace, word, said):
    """What hangs is ended, and a process that starts anew takes none of the next check's time."""
    folder = handed_in("return 2 * batch *", replace)
    done = python("-m", "grader", "check", "03", "--submission", folder, "--timeout", "2")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{VISIBLE - 1} of {VISIBLE} checks passed" in done.stdout, done.stdout
    assert f"test_flops · {word}" in done.stdout and f'--submission "{folder}"' in done.stdout, done.stdout
    assert said in " ".join(done.stdout.split()), done.stdout


def test_watch_ends_with_q(python):
    done = python("-m", "grader", "watch", "03", typed="q\n")
    assert done.returncode == 0 and "This is how it stands" in done.stdout, done.stdout + done.stderr


def test_a_hint(python):
    done = python("-m", "grader", "hint", "softmax", "logsumexp")
    assert done.returncode == 0 and done.stdout, done.stderr


def test_check_in_a_notebook(python):
    done = python("-c", "from grader import check; check('linear')")
    assert done.returncode == 0 and done.stdout.startswith("ex03_linear: "), done.stderr


@pytest.mark.parametrize("python", ["here"], indirect=True)
def test_pytest_asks_the_grader(python):
    done = python("-m", "pytest", "-p", "no:cacheprovider", "tests/test_ex03_linear.py", "--submission", "solutions")
    assert done.returncode == 0 and f"{VISIBLE} passed" in done.stdout, done.stdout


def test_a_fresh_stub_is_not_kept_for_its_line_ends_here(tmp_path, monkeypatch):
    stub = fresh(tmp_path) / LINEAR.solution.name
    stub.write_bytes(stub.read_bytes().replace(b"\n", b"\r\n"))
    monkeypatch.setattr(chapters, "EXERCISES", tmp_path)
    assert stubs.reset(LINEAR) is None
    assert b"\r" not in stub.read_bytes() and not list(tmp_path.glob("*.bak"))
