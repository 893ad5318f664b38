"""What runs on GitHub: every action is named by its commit, the same one everywhere, and Dependabot sees it."""

import re

import yaml

from grader.course.chapters import ROOT

STUDENTS = ROOT / "grader/classroom/platforms/github/.github/workflows"


def test_every_action_is_pinned_by_commit():
    """A tag can be moved to other code. The comment tells a reader, and Dependabot, which version it is."""
    pins: dict[str, set[str]] = {}
    for file in [*(ROOT / ".github").rglob("*.yml"), *STUDENTS.glob("*.yml")]:
        for action, _, pin in re.findall(r"(?m)^\s*(?:- )?uses: ([^@\s]+)(@(.*))?$", file.read_text("utf-8")):
            if action.startswith("./"):
                assert (ROOT / action / "action.yml").is_file()
            else:
                assert re.fullmatch(r"[0-9a-f]{40} # v\d+\.\d+\.\d+", pin), f"{file.name}: {action}"
                pins.setdefault(action, set()).add(pin)
    assert pins and all(len(versions) == 1 for versions in pins.values()), pins


def test_dependabot_looks_where_actions_and_packages_are_named():
    updates = {update["package-ecosystem"]: update for update in yaml.safe_load(
        (ROOT / ".github/dependabot.yml").read_text("utf-8"))["updates"]}
    seen = set(updates["github-actions"]["directories"])
    assert seen >= {"/", f"/{STUDENTS.relative_to(ROOT).as_posix()}",
                    *(f"/{file.parent.relative_to(ROOT).as_posix()}" for file in ROOT.glob(".github/actions/*/*.yml"))}
    assert updates["pip"]["directory"] == "/"
    assert all(update["schedule"]["interval"] == "weekly" and update["groups"] for update in updates.values())
