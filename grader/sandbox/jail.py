"""Two walls around submissions, and the proof that they hold. Linux with bubblewrap and libseccomp.

The zygote of a run lives in bubblewrap: no network, no process but its own, a clean environment, and
of the disk only the interpreter, the engine and the stages. A stage is a folder with copies of what one
worker may read. Each worker, after its fork and before a student's line runs, shuts itself in further:
it hides all stages but its own, and every process; it gives up starting processes, signals to others,
sockets and shared memory. Both walls need only what bubblewrap needs, user namespaces, and no root.
"""

import ctypes
import errno
import itertools
import json
import mmap
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from grader.course.chapters import ROOT, chapters

MAX_FILE = 1 << 20          # bytes of a submission's file
MAX_FILES = 100             # files of a submission
FILES = 64 << 20            # bytes that a worker may write, all of them into memory
MEMORY = 4 << 30            # bytes that a worker may take beyond the zygote's
THREADS = 64                # threads of a worker
PROBING = 60.0              # seconds that the proof may take
CPU = 300                   # seconds that a worker may compute, whatever it is asked
SCRATCH = "/scratch"        # where it may write them
SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache", "/sys/devices/system/cpu")
INSTALL = "apt-get install bubblewrap libseccomp2, and pip install -r requirements-class.txt"

# What no exercise needs: new processes, other processes, other namespaces, the network, shared memory.
REFUSED = """
    fork vfork execve execveat ptrace process_vm_readv process_vm_writev process_madvise
    kill tkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open pidfd_send_signal pidfd_getfd
    unshare setns mount umount2 pivot_root chroot fsopen fsmount open_tree move_mount mount_setattr
    open_by_handle_at socket socketpair io_uring_setup bpf perf_event_open userfaultfd
    shmget msgget semget mq_open memfd_create memfd_secret keyctl add_key request_key
    setpriority ioprio_set sched_setaffinity sched_setscheduler sched_setparam sched_setattr
    move_pages migrate_pages kcmp process_mrelease
    flock inotify_init inotify_init1 fanotify_init""".split()       # by a file that both can read, two could talk

_NEW_MOUNTS, _NEW_USER = 0x0002_0000, 0x1000_0000                           # <linux/sched.h>
_THREAD = 0x0001_0000
_READ_ONLY, _NO_SUID, _NO_DEVICES, _REMOUNT = 1, 2, 4, 32                  # <sys/mount.h>
_BIND, _WITH_ALL_BELOW, _PRIVATE = 1 << 12, 1 << 14, 1 << 18
_GROWS_DOWN = 0x100                                                         # <linux/mman.h>
# F_SETLK … F_OFD_SETLKW, F_SETLEASE, F_NOTIFY, as flock; F_SETOWN … SIOCSPGRP send signals by a pipe.
_REFUSED_COMMANDS = {"fcntl": (6, 7, 37, 38, 1024, 1026, 8, 10, 15), "ioctl": (0x8901, 0x8902)}
_SHARED_AND_ANONYMOUS = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS if sys.platform == "linux" else 0
_CAPABILITIES_3 = 0x2008_0522                                               # <linux/capability.h>


def missing() -> str:
    """Why the walls cannot be built on this machine, or ""."""
    if sys.platform != "linux":
        return "the jail needs Linux"
    if not shutil.which("bwrap"):
        return f"bubblewrap is not installed ({INSTALL})"
    try:
        import pyseccomp  # noqa: F401
    except (ImportError, RuntimeError) as error:
        return f"{error} ({INSTALL})"
    with tempfile.TemporaryDirectory() as stages:
        tried = subprocess.run(around(["/bin/true"], stages), capture_output=True, text=True)
    return f"bubblewrap cannot build a jail here: {tried.stderr.strip()}" if tried.returncode else ""


def around(command: list[str], stages: str) -> list[str]:
    """The command, run by bubblewrap behind the first wall."""
    read = [option for path in SYSTEM for option in
            (("--symlink", os.readlink(path), path) if os.path.islink(path) else ("--ro-bind-try", path, path))]
    engine = [str(ROOT / "grader" / name) for name in ("__init__.py", "course", "sandbox", "judge")]
    for path in dict.fromkeys([sys.base_prefix, sys.prefix, *engine, str(ROOT / "given"), stages]):
        read += ["--ro-bind", path, path]
    given = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "TMPDIR": SCRATCH,
             "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "1"}
    return ["bwrap", "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--clearenv",
            *(word for name, value in given.items() for word in ("--setenv", name, value)),
            "--dir", "/tmp", "--size", str(FILES), "--tmpfs", SCRATCH, *read, "--proc", "/proc", "--dev", "/dev",
            "--remount-ro", "/", "--chdir", "/", "--", *command]


class Stages:
    """A folder of stages: one for each submission, and one of what all of a chapter's submissions share."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="stages-")
        self.path = os.path.realpath(self._folder.name)
        self._numbers = itertools.count(1)
        self._shared: dict[str, Stage] = {}

    def stage(self, scan: dict) -> tuple["Stage", "Stage", dict]:
        """(a new stage with the submission, the one it shares with others, the request with their paths).

        The first holds the submission's own files; the second the chapters before it, and the checks' files.
        """
        own, folder = self._new(), Path(scan["fallback"])
        for file in sorted(folder.glob("*.py"))[:MAX_FILES]:
            if file.is_file() and not file.is_symlink() and file.stat().st_size <= MAX_FILE:
                own.copy(file)
        earlier = {stem: Path(path) for stem, path in scan["folders"].items() if Path(path) != folder}
        name = json.dumps([scan["tests"], {stem: str(path) for stem, path in earlier.items()}])
        if name not in self._shared:
            shared = self._shared[name] = self._new()
            for stem, path in earlier.items():
                shared.copy(path / f"{stem}.py", "earlier")
            for number, test in enumerate(scan["tests"]):
                shared.copy(Path(test["path"]), f"tests/{number}")
        shared = self._shared[name]
        return own, shared, {**scan, "fallback": str(own.path), "folders": {
            stem: str(shared.path / "earlier" if stem in earlier else own.path) for stem in scan["folders"]}, "tests": [
            {**test, "path": str(shared.path / f"tests/{number}" / Path(test["path"]).name)}
            for number, test in enumerate(scan["tests"])]}

    def _new(self) -> "Stage":
        return Stage(Path(self.path, str(next(self._numbers))))

    def close(self) -> None:
        self._folder.cleanup()


class Stage:
    """A folder with copies of what a worker may read. copies: what each of them is a copy of."""

    def __init__(self, path: Path):
        self.path, self.copies = path, {}
        path.mkdir()

    def copy(self, file: Path, into: str = ".") -> None:
        """Put a copy of a file onto the stage."""
        copy = self.path / into / file.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
        self.copies[copy] = file

    def clear(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


# -- in a worker ---------------------------------------------------------------------------------


def confine(*stages: str) -> None:
    """The second wall, around the calling process, which may read these stages. It cannot be undone."""
    import resource
    mapped = int(re.search(r"VmSize:\s+(\d+)", Path("/proc/self/status").read_text())[1]) << 10
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, mapped + MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU, CPU + 5))
    _hide(stages)
    resource.setrlimit(resource.RLIMIT_NPROC, (THREADS, THREADS))       # root is exempt
    _give_up_capabilities()
    _refuse_calls()
    os.chdir(stages[0])


def _hide(own: tuple[str, ...]) -> None:
    """Leave of the stages one's own, of /proc the processor's description, and a small private folder to write in."""
    stages, user, group = os.path.dirname(own[0]), os.getuid(), os.getgid()
    _call("unshare", _NEW_USER | _NEW_MOUNTS)
    for name, line in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        Path("/proc/self", name).write_text(line)
    _call("mount", b"none", b"/", None, _WITH_ALL_BELOW | _PRIVATE, None)
    held = {stage: os.open(stage, os.O_PATH) for stage in own}
    _memory(stages, 4096)
    for stage, number in held.items():
        os.mkdir(stage)
        _call("mount", b"/proc/self/fd/%d" % number, stage.encode(), None, _BIND, None)
        os.close(number)
    _call("mount", None, stages.encode(), None, _REMOUNT | _READ_ONLY | _NO_SUID | _NO_DEVICES, None)
    _memory(SCRATCH, FILES)
    _memory("/dev/shm", 4096, _READ_ONLY)
    _memory("/proc", 4096, _READ_ONLY)


def _memory(path: str, size: int, flags: int = 0) -> None:
    """Cover a folder with an empty one in memory."""
    _call("mount", b"tmpfs", path.encode(), b"tmpfs", _NO_SUID | _NO_DEVICES | flags,
          f"size={size},nr_inodes=4096".encode())


def _give_up_capabilities() -> None:
    _call("capset", (ctypes.c_uint32 * 2)(_CAPABILITIES_3, 0), (ctypes.c_uint32 * 6)())


def _refuse_calls() -> None:
    """Have the kernel refuse what REFUSED names; threads of one's own stay allowed."""
    import pyseccomp as seccomp
    no, calls = seccomp.ERRNO(errno.EPERM), seccomp.SyscallFilter(seccomp.ALLOW)
    for name in REFUSED:
        try:
            calls.add_rule(no, name)
        except OSError:         # a call that this processor does not have
            if name in ("execve", "ptrace", "socket", "mount", "kill"):
                raise
    calls.add_rule(seccomp.ERRNO(errno.ENOSYS), "clone3")       # its flags cannot be seen; clone's can
    calls.add_rule(no, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, _THREAD, 0))
    calls.add_rule(no, "mmap", seccomp.Arg(3, seccomp.MASKED_EQ, _SHARED_AND_ANONYMOUS, _SHARED_AND_ANONYMOUS))
    calls.add_rule(no, "mmap", seccomp.Arg(3, seccomp.MASKED_EQ, _GROWS_DOWN, _GROWS_DOWN))     # counted nowhere
    calls.add_rule(no, "tgkill", seccomp.Arg(0, seccomp.NE, os.getpid()))
    calls.add_rule(no, "prlimit64", seccomp.Arg(0, seccomp.NE, 0))
    for name, commands in _REFUSED_COMMANDS.items():
        for command in commands:        # of these 32 bits count
            calls.add_rule(no, name, seccomp.Arg(1, seccomp.MASKED_EQ, 0xFFFF_FFFF, command))
    calls.set_attr(seccomp.Attr.ACT_BADARCH, seccomp.KILL_PROCESS)
    calls.load()


def _call(name: str, *arguments) -> None:
    """A function of the C library that returns 0, or OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


# -- the proof -----------------------------------------------------------------------------------


def probe(launcher) -> dict[str, bool]:
    """Have a worker attempt what each layer forbids. {layer: whether it was refused}."""
    chapter, stage = chapters()[0], Path(launcher.stages.path, "probe")
    neighbour = Path(launcher.stages.path, "neighbour")
    with tempfile.NamedTemporaryFile() as strangers:
        neighbour.touch()
        stage.mkdir(exist_ok=True)
        secrets = [strangers.name, neighbour, chapter.solution, chapter.mistakes,
                   chapter.tests(), chapter.tests(hidden=True)]
        worker = launcher.start("grader.sandbox.worker", [str(stage)])
        try:
            return worker.ask("probe", PROBING, name="", secrets=list(map(str, secrets)))[0]["layers"]
        finally:
            worker.end()


def attempts(secrets: list[str]) -> dict[str, bool]:
    """Try, in a worker, what each layer forbids. {layer: whether all of it was refused}."""
    folders = ["/tmp", "/dev/shm", os.getcwd(), os.path.dirname(os.getcwd()), str(ROOT / "grader"), str(ROOT / "given"),
               sys.prefix, "/"]
    tried = {
        "no network": [lambda: socket.create_connection(("127.0.0.1", 9), 1), lambda: socket.socket(socket.AF_UNIX)],
        "no file but its own": [partial(_open, path) for path in (*secrets, f"/proc/{os.getppid()}/mem")],
        "nothing written but in a folder of its own": [partial(_write, folder) for folder in folders],
        "no new process": [lambda: os.fork() or os._exit(0), lambda: os.execv("/bin/true", ["true"])],
        "no signal to others": [lambda: os.kill(os.getppid(), 0), lambda: os.kill(-1, 0)],
        "no shared memory": [lambda: mmap.mmap(-1, 1 << 20), lambda: os.memfd_create("shared")],
        "no lock or watch on a file": [_lock, _watch],
        "little disk": [_fill],
        "little memory": [lambda: bytearray(1 << 40), lambda: bytearray(6 << 30)],
    }
    return {layer: all(map(_refused, acts)) for layer, acts in tried.items()}


def _refused(act) -> bool:
    try:
        act()
    except (OSError, MemoryError):
        return True
    return False


def _open(path: str) -> None:
    open(path, "rb").close()


def _write(folder: str) -> None:
    path = Path(folder, f"written-{os.getpid()}")
    path.touch()
    path.unlink()


def _lock() -> None:
    import fcntl
    with open(sys.executable) as file:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def _watch() -> None:
    if (number := ctypes.CDLL(None, use_errno=True).inotify_init()) < 0:
        raise OSError(ctypes.get_errno(), "nothing can be watched")
    os.close(number)


def _fill() -> None:
    with open(os.path.join(SCRATCH, "fill"), "wb") as file:
        for _ in range(2 * FILES >> 20):
            file.write(bytes(1 << 20))
    os.remove(file.name)
