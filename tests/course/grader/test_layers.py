"""The rooms of grader/ lie on top of each other: no import runs back up, and none in a circle."""

import ast
from pathlib import Path

import pytest

from grader.course.chapters import ROOT

ROOMS = ["course", "sandbox", "judge", "front", "author", "classroom"]      # each may import those before it
DOORS = {"grader", "grader.__main__"}       # they stand above, and lead into every room


def _modules() -> dict[str, Path]:
    """Every module of the grader, the site and the pocket model, by its dotted name."""
    found = {}
    for path in [*ROOT.glob("grader/**/*.py"), *ROOT.glob("docs/*.py"), *ROOT.glob("assets/pocket/*.py")]:
        parts = path.relative_to(ROOT).with_suffix("").parts
        if "node_modules" in parts or parts[:3] == ("grader", "author", "chapter") or "platforms" in parts[:-2]:
            continue
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


def _imports(name: str, source: str, known: dict[str, Path]) -> set[str]:
    """The modules among these that a source imports, inside of functions too."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    beside = {module.rpartition(".")[2]: module for module in known if module.startswith("assets.pocket.")}
    found |= {beside[module] for module in found & beside.keys() if name.startswith("assets.pocket.")}    # scripts
    return found & known.keys()


def _graph() -> dict[str, set[str]]:
    known = _modules()
    return {name: _imports(name, path.read_text("utf-8"), known) - {name} for name, path in known.items()}


def test_every_module_is_in_a_room():
    rooms = {name.split(".")[1] for name in _graph() if name.startswith("grader.")} - {"__main__"}
    assert rooms == set(ROOMS)


def _up(name: str, imports: set[str]) -> list[str]:
    """Those of a module's imports that lie above its room."""
    room = ROOMS.index(name.split(".")[1])
    return [other for other in imports if other == "grader.__main__" or (
        other.startswith("grader.") and other not in DOORS and ROOMS.index(other.split(".")[1]) > room)]


def test_no_import_runs_up():
    for name, imports in _graph().items():
        if name.startswith("grader.") and name not in DOORS:
            up = _up(name, imports)
            assert not up, f"{name} imports {', '.join(up)}, which lie above it"


def test_no_import_runs_in_a_circle():
    graph = {name: imports - {"grader"} for name, imports in _graph().items()}      # that one only names its rooms
    while leaves := [name for name, imports in graph.items() if not imports & graph.keys()]:
        for name in leaves:
            del graph[name]
    assert not graph, f"these import each other: {', '.join(sorted(graph))}"


def test_no_room_is_crowded():
    for room in ROOMS:
        files = [path for path in (ROOT / "grader" / room).glob("*.py") if path.name != "__init__.py"]
        assert len(files) <= 12, room
        assert all(len(path.read_text("utf-8").splitlines()) <= 300 for path in files), room


@pytest.mark.parametrize("line", ["from grader.judge import engine", "import grader.judge.engine",
                                  "def f():\n    from grader.judge.engine import Grader"])
def test_an_import_that_runs_up_would_be_seen(line):
    assert "grader.judge.engine" in _up("grader.sandbox.worker", _imports("grader.sandbox.worker", line, _modules()))
