"""`giveback OUT`: a run's pages as Canvas and Moodle take them back, and as letters; nothing is sent.

Both platforms know whose a file is by the numbers in the names of their own download, so these are kept. Moodle takes
any file. Canvas shows a student what comes back under the name of what was handed in: the feedback on a .py is
written as comments, and the page goes into a .zip.
"""

import io
import json
import time
import zipfile
from collections.abc import Iterator
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from pathlib import Path

from grader.classroom.intake import sources
from grader.classroom.intake.roster import Person, Roster
from grader.classroom.output.exports import file_names
from grader.classroom.run.grade import locked
from grader.classroom.run.options import manifest
from grader.course.chapters import Chapter
from grader.front.report import title

PAGE = "feedback.html"
STAMP = (1980, 1, 1, 0, 0, 0)       # of what lies in the zips: the same pages give the same bytes


def run(options) -> int:
    """Write OUT/giveback; what lay there is kept. 0: everybody gets theirs in one way; 1: somebody does not."""
    out = options.out
    said = manifest(out / "manifest.json")
    if "ended" not in said:
        raise ValueError(f"{out}: this run has not ended; grade --resume --out {out} goes on with it")
    known = options.roster or (Path(said["options"]["roster"]) if said["options"].get("roster") else None)
    roster = Roster.read(known) if known else Roster([])
    with locked(out):
        folder = out / "giveback"
        if folder.exists():
            (out / "kept").mkdir(exist_ok=True)
            folder.rename(out / "kept" / time.strftime("giveback-%Y%m%d-%H%M%S"))
        return _write(folder, said, roster, Results(out, said))


class Results:
    """What a run has written for each student."""

    def __init__(self, out: Path, said: dict):
        self._out, self._files = out, file_names(sorted(said["students"], key=lambda name: (name.casefold(), name)))
        self.chapters = [Chapter(stem) for stem in said["options"]["chapters"]]

    def file(self, student: str) -> str:
        """What a student's files are called."""
        return self._files[student]

    def page(self, student: str) -> str:
        return (self._out / "feedback" / f"{self._files[student]}.html").read_text("utf-8")

    def _said(self, student: str) -> dict:
        return json.loads((self._out / "results" / f"{self._files[student]}.json").read_text("utf-8"))

    def total(self, student: str) -> str:
        """The points, and what is to be said of them, such as what being late took off."""
        said = self._said(student)
        most = round(sum(test["max_score"] for test in said["tests"]), 4)
        return "\n".join(filter(None, [f"{said['score']:g} of {most:g} points", said["output"]]))

    def comments(self, student: str, chapters: list[Chapter]) -> str:
        """The feedback on chapters as a Python file of comments."""
        lines = [f"Feedback for {student}, in all {self.total(student)}"]
        for chapter in chapters:
            own = [test for test in self._said(student)["tests"] if f"{test['name']}:".startswith(f"{title(chapter)}:")]
            got, most = (round(sum(test[key] for test in own), 4) for key in ("score", "max_score"))
            lines += ["", f"{chapter.stem}.py: {got:g} of {most:g} points"]
            for test in own:
                name = test["name"].partition(": ")[2] or "the whole file"
                lines.append(f"  {name}: {test['score']:g} of {test['max_score']:g}")
                if test["status"] == "failed":
                    lines += [f"      {line}" for line in test["output"].splitlines()]
        text = "\n".join(lines)
        return "".join(f"# {line}".rstrip() + "\n" for line in "".join(
            c if c.isprintable() or c == "\n" else "?" for c in text.expandtabs(4)).split("\n"))


def _write(folder: Path, said: dict, roster: Roster, results: Results) -> int:
    letters, canvas, moodle = {}, {}, {}
    nowhere, unsent = [], []
    for student, entry in said["students"].items():
        try:
            page = results.page(student)
        except FileNotFoundError:
            nowhere.append(student)
            continue
        names = entry.get("names", [])
        for_canvas, for_moodle = dict(_for_canvas(student, names, results, page)), dict(_for_moodle(names, page))
        person = roster.called(student)
        if person and person.email:
            try:
                letters[results.file(student)] = letter(person, results.total(student), page)
            except (ValueError, IndexError, MessageError):
                unsent.append(f"{student} ({person.email!r} is no address)")
        canvas.update(for_canvas)
        moodle.update(for_moodle)
        if not (for_canvas or for_moodle or results.file(student) in letters):
            nowhere.append(student)
    folder.mkdir(parents=True)
    for name, files, where in (("canvas.zip", canvas, "the assignment's menu in Canvas' gradebook: Upload Submissions"),
                               ("moodle.zip", moodle, "Moodle's assignment: Upload multiple feedback files in a zip")):
        if files:
            (folder / name).write_bytes(_zip(files))
            print(f"{name}: {len(files)} files, for {where}.")
    for name, content in letters.items():
        (folder / "mail").mkdir(exist_ok=True)
        (folder / "mail" / f"{name}.eml").write_bytes(content)
    if letters:
        print(f"mail: {len(letters)} letters, none of which was sent. A mail program opens them as drafts.")
    for words, names in (("no letter", unsent), ("goes back in no way", nowhere)):
        if names:
            print(f"{words}: {', '.join(names)}")
    if not (canvas or moodle or letters):
        print("For Canvas and Moodle, grade their downloads as they come; for letters, name a roster with addresses.")
    print(f"Written to {folder}.")
    return 1 if nowhere or unsent else 0


def _for_canvas(student: str, names: list[str], results: Results, page: str) -> Iterator[tuple[str, bytes]]:
    """The files that go back to a student, by the names under which Canvas gave theirs."""
    found = {name: file for name in names if (file := sources.canvas_file(name))}
    own = {name: [chapter] for name, file in found.items() for chapter in results.chapters
           if file == f"{chapter.stem}.py"}
    if not own:         # of what cannot be told to be a chapter's, one file carries all
        own = {name: results.chapters for name in [name for name, file in found.items() if file.endswith(".py")][:1]}
    for name, chapters in own.items():
        yield name, results.comments(student, chapters).encode()
    if not own:
        for name in [name for name, file in found.items() if file.endswith(".zip")][:1]:
            yield name, _zip({PAGE: page.encode()})


def _for_moodle(names: list[str], page: str) -> Iterator[tuple[str, bytes]]:
    """The page, in the folder under which Moodle gave what was handed in."""
    for folder in [folder for name in names if (folder := sources.moodle_folder(name))][:1]:
        yield f"{folder}/{PAGE}", page.encode()


def letter(person: Person, total: str, page: str) -> bytes:
    """A draft with the page attached; a ValueError or a MessageError where the address is none."""
    name = " ".join(reversed(person.name.split(", ")))
    message = EmailMessage(policy=SMTP)
    message["To"] = Address(name, addr_spec=person.email)
    message["Subject"] = "Feedback on your exercises"
    message["X-Unsent"] = "1"       # a draft, to programs that know this
    message.set_content(f"Hello{' ' * bool(name)}{name},\n\nyour exercises have been graded:\n\n{total}\n\n"
                        "The page that is attached says what was asked and what came of it; any browser opens it.\n")
    message.add_attachment(page, subtype="html", filename=PAGE)
    return message.as_bytes()


def _zip(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, STAMP), content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()
