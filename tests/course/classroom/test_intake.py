"""Reading what a class handed in, attacked: one entry's fault is that entry's alone, and has limits."""

import gzip
import io
import os
import shutil
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from grader.classroom.intake import collect, reading, sources
from grader.classroom.intake.roster import Roster
from grader.course import chapters

LINEAR = chapters.find("linear")
GOOD = "x = 1\n"


def _class(top: Path, *names: str) -> Path:
    for name in names:
        (top / name).mkdir(parents=True)
        (top / name / "ex03_linear.py").write_text(GOOD)
    return top


def _handed(top: Path, out: Path) -> dict[str, collect.Handed]:
    return {student.name: student for student in collect.collect(top, out)[0]}


@pytest.mark.parametrize("becomes", ["a link", "nothing", "a file"])
def test_what_changes_after_the_first_look_is_that_students_fault_alone(becomes, tmp_path, monkeypatch):
    """A folder that a sync client takes away, or a student swaps: everybody else's files stay."""
    top, looked = _class(tmp_path / "in", "ada", "eve", "zoe"), collect.sources_of

    def then_changed(*arguments):
        found = looked(*arguments)
        shutil.rmtree(top / "eve")
        if becomes == "a link":
            (top / "eve").symlink_to(chapters.SOLUTIONS)
        elif becomes == "a file":
            (top / "eve").write_text("no archive")
        return found

    monkeypatch.setattr(collect, "sources_of", then_changed)
    handed = _handed(top, tmp_path / "out")
    assert handed.keys() == {"ada", "eve", "zoe"}
    for name in ("ada", "zoe"):
        assert (handed[name].folder / "ex03_linear.py").read_text() == GOOD
    assert "cannot be read" in handed["eve"].refused[0] and handed["eve"].missing(LINEAR)
    assert not list(handed["eve"].folder.iterdir())


@pytest.mark.parametrize("deep", [False, True])
def test_a_folder_that_becomes_a_link_during_the_walk_is_not_followed(deep, tmp_path, monkeypatch):
    folder = tmp_path / "eve" / "work" if deep else tmp_path / "eve"
    (folder / "exercises").mkdir(parents=True)
    (folder / "exercises" / "ex03_linear.py").write_text(GOOD)
    opened = reading._open

    def swapped(name, *arguments):
        if name == "exercises":
            shutil.rmtree(folder / name)
            (folder / name).symlink_to(chapters.SOLUTIONS)
        return opened(name, *arguments)

    monkeypatch.setattr(reading, "_open", swapped)
    found = reading.read({"": tmp_path / "eve"})
    assert not found.chosen and "cannot be read" in found.refused[0]


def _tar(members) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def _folders():
    for number in range(2 * reading.MAX_ENTRIES):
        info = tarfile.TarInfo(f"d{number}")
        info.type = tarfile.DIRTYPE
        yield info, b""


def _oversized() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(2 * reading.MAX_REFUSED):
            archive.writestr(f"m{number}.py", b"#" * (reading.MAX_FILE + 1))
    return packed.getvalue()


def _header():
    info = tarfile.TarInfo("ex03_linear.py")
    info.pax_headers = {"comment": "x" * (200 << 20)}
    yield info, b""


@pytest.mark.parametrize("name, content, words", [
    ("eve.tgz", lambda: _tar(_folders()), "files and folders"),
    ("eve.zip", _oversized, "of its files cannot be taken"),
    ("eve.tar.gz", lambda: gzip.compress(b"") * (40 << 20 >> 5), "cannot be read|seconds"),
    ("eve.tgz", lambda: _tar(_header()), "memory|MemoryError|unpacks to more"),
], ids=["folders", "oversized", "empty gzip members", "a header of 200 MB"])
def test_reading_an_archive_has_limits(name, content, words, tmp_path, monkeypatch):
    monkeypatch.setattr(collect, "SECONDS", 4.0)
    top = _class(tmp_path / "in", "ada", "zoe")
    (top / name).write_bytes(content())
    start = time.monotonic()
    handed = _handed(top, tmp_path / "out")
    assert time.monotonic() - start < 10 * collect.SECONDS
    assert any(word in handed["eve"].refused[0] for word in words.split("|")), handed["eve"].refused
    assert len(handed["eve"].refused) == 1
    for other in ("ada", "zoe"):
        assert not handed[other].refused and handed[other].missing(LINEAR) is None


def test_what_ends_the_reader_ends_one_entry(tmp_path, monkeypatch):
    """The next student has a new one."""
    asked = collect.Reader.read

    def killed(reader, source):
        if source.name == "eve":
            asked(reader, source)
            os.kill(reader._child.pid, 9)
        return asked(reader, source)

    monkeypatch.setattr(collect.Reader, "read", killed)
    handed = _handed(_class(tmp_path / "in", "ada", "eve", "zoe"), tmp_path / "out")
    assert handed["eve"].refused == ["eve: reading it took too much memory"]
    assert handed["zoe"].missing(LINEAR) is None and not handed["zoe"].refused


@pytest.mark.parametrize("name", ["a" * 300, "学" * 84])
def test_a_file_with_a_name_that_no_disk_takes_is_left_out(name, tmp_path):
    """In an archive a name may have 65,535 bytes; writing such a file would end the run."""
    top = _class(tmp_path / "in", "ada")
    with zipfile.ZipFile(top / "eve.zip", "w") as archive:
        archive.writestr(f"{name}.py", GOOD)
        archive.writestr("ex03_linear.py", GOOD)
    handed = _handed(top, tmp_path / "out")
    assert "its name has more than" in handed["eve"].refused[0]
    assert handed["eve"].missing(LINEAR) is None and handed["ada"].missing(LINEAR) is None


@pytest.mark.parametrize("files, words", [
    ({"a/b/c/d/ex03_linear.py": GOOD}, "it lies in 3 others"),
    ({"inner.zip": "PK", "readme.txt": "see the zip"}, "an archive in it is not read"),
    ({"ex03_linear.py": GOOD, "exercises/ex03_linear.py": GOOD}, "those in the folder itself were taken"),
    ({"ex03_linear.py": chapters.stub(LINEAR), "ex03_linear (1).py": GOOD}, "which is the stub as it was handed out"),
    ({"ex03_linear.py": GOOD, "a/b/c/d/notes.txt": ""}, ""),
    ({"exercises/ex03_linear.py": GOOD, "solutions/ex03_linear.py": GOOD}, ""),
])
def test_what_was_not_taken_is_said(files, words, tmp_path):
    for name, content in files.items():
        (tmp_path / "ada" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "ada" / name).write_text(content)
    said = reading.read({"": tmp_path / "ada"}).refused
    assert words in said[0] if words else not said


# -- as an LMS gives it ----------------------------------------------------------------------------

PEOPLE = """name,login,id,email,section
Ada Lovelace,alovelace10,70000,alovelace10@uni.edu,A
"O'Neil, Eve",eve,124,eve@uni.edu,A
Zoë Müller,zmueller,70003,zm@uni.edu,B
Grace Hopper,ghopper,70004,,B
हिन्दी शर्मा,hsharma,70005,,B
"""
METADATA = """submission_111222:
  :submitters:
  - :name: Ada Lovelace
    :sid: '70000'
    :email: alovelace10@uni.edu
  :created_at: 2026-11-20 10:00:00 Z
submission_111223:
  :submitters:
  - :name: Zoë Müller
    :email: zm@uni.edu
"""
SHAPES = {
    "canvas": {"lovelaceada_LATE_70000_998811_ex03_linear-1.py": "2", "lovelaceada_70000_998800_ex03_linear.py": "1",
               "müllerzoë_70003_998812_ex03_linear.py": GOOD, "lovelaceada_70000_998812_ex00_shapes.py": GOOD},
    "moodle": {"O'Neil Eve_124_assignsubmission_file_/ex03_linear.py": "2",
               "Grace Hopper_9_assignsubmission_file_/ex03_linear.py": GOOD},
    "gradescope": {"submission_metadata.yml": METADATA, "submission_111222/ex03_linear.py": "2",
                   "submission_111223/exercises/ex03_linear.py": GOOD},
    "github": {"week-3-alovelace10/exercises/ex03_linear.py": "2", "week-3-ghopper/exercises/ex03_linear.py": GOOD},
    "names": {"Lovelace, Ada/ex03_linear.py": "2", "Zoë Müller/ex03_linear.py": GOOD,
              "हिन्दी शर्मा/ex03_linear.py": GOOD},
}


@pytest.mark.parametrize("shape, first, others", [
    ("canvas", "alovelace10", {"zmueller"}), ("moodle", "eve", {"ghopper"}),
    ("gradescope", "alovelace10", {"zmueller"}),
    ("github", "alovelace10", {"ghopper"}), ("names", "alovelace10", {"zmueller", "hsharma"})])
def test_what_a_platform_exports_is_joined_to_the_roster(shape, first, others, tmp_path):
    for name, content in SHAPES[shape].items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(content, "utf-8")
    (tmp_path / "roster.csv").write_text(PEOPLE, "utf-8")
    students, refused = collect.collect(tmp_path / "in", tmp_path / "out",
                                        roster=Roster.read(tmp_path / "roster.csv"))
    handed = {student.name: student for student in students}
    assert handed.keys() == {first} | others and not refused
    assert (handed[first].folder / "ex03_linear.py").read_text() == "2"
    assert all(handed[name].missing(LINEAR) is None and not handed[name].refused for name in others)
    # Without a roster they are called what the platform calls them.
    assert len(collect.collect(tmp_path / "in", tmp_path / "bare")[0]) == len(handed)


# Each as the platform writes it: what is handed in, under names as people have them, and who has what then.
CLASS = """name,login,id,email
Ada Lovelace,ada,70000,alovelace10@uni.edu
"O'Neil, Eve",eve,124,eve@uni.edu
"van der Berg, Anna Maria",anna,125,
José García,jose,126,
山田 太郎,yamada,127,
Anna Schmidt,schmidt1,128,
"Schmidt, Anna",schmidt2,129,
anon,smith,,
Anna Smith,anna-smith,130,
"""
PLATFORMS = {
    "canvas, a zip each": ({"oneileve_124_9_hw-2.zip": "2", "oneileve_124_8_hw-1.zip": "1",
                            "vanderbergannamaria_LATE_125_7_hw.tar.gz": "2",
                            "garcíajosé_126_3_ex03_linear.py": "2"}, {"eve", "anna", "jose"}),
    "canvas, other files": ({"山田太郎_127_4_ex03_linear-3.py": "2", "山田太郎_127_5_photo.heic": "x",
                             "山田太郎_127_2_ex03_linear.py": "1", "schmidtanna_129_8_ex03_linear.py": "2",
                             "schmidtanna_128_6_ex03_linear-1.py": "2"}, {"yamada", "schmidt1", "schmidt2"}),
    "moodle with texts": ({"O'Neil Eve_5_assignsubmission_file_/ex03_linear.py": "2",
                           "O'Neil Eve_5_assignsubmission_onlinetext_/onlinetext.html": "hello",
                           "José García_6_assignsubmission_file/hw.zip": "2",
                           "Lovelace Ada._8_assignsubmission_file_/ex03_linear.py": "2",    # as Jr. ends
                           "Anna Maria van der Berg_7_assignsubmission_file_/ex03_linear.py": "2"},
                          {"eve", "jose", "anna", "ada"}),
    "moodle, flat": ({"Eve O'Neil_5_assignsubmission_file_ex03_linear.py": "2",
                      "Eve O'Neil_5_assignsubmission_onlinetext_onlinetext.html": "hello",
                      "Anna Schmidt_128_assignsubmission_file_ex03_linear.py": "2"}, {"eve", "schmidt1"}),
    "github": ({"week-1-anna-smith/exercises/ex03_linear.py": "2", "week-1-ada/ex03_linear.py": "2"},
               {"anna-smith", "ada"}),
    "a zip each": ({"Jose\u0301 Garci\u0301a.zip": "2", "Lovelace, Ada.zip": "2", "太郎 山田.tar.gz": "2",
                    "Anna Maria van der Berg.zip": "2", "O’Neil, Eve.tgz": "2"},
                   {"jose", "ada", "yamada", "anna", "eve"}),
}


def _write(path: Path, text: str) -> None:
    """A file that says this; an archive of an exercise that does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("hw/ex03_linear.py", text)
    elif path.suffix in (".gz", ".tgz"):
        info = tarfile.TarInfo("exercises/ex03_linear.py")
        info.size = len(text)
        path.write_bytes(_tar([(info, text.encode())]))
    else:
        path.write_text(text, "utf-8")


@pytest.mark.parametrize("shape", PLATFORMS)
def test_every_shape_of_every_platform_with_names_as_people_have_them(shape, tmp_path):
    files, whose = PLATFORMS[shape]
    for name, text in files.items():
        _write(tmp_path / "in" / name, text)
    (tmp_path / "roster.csv").write_text(CLASS, "utf-8")
    roster = Roster.read(tmp_path / "roster.csv")
    students, refused = collect.collect(tmp_path / "in", tmp_path / "out", roster=roster)
    assert {student.name for student in students} == whose and not refused
    for student in students:
        assert (student.folder / "ex03_linear.py").read_text() == "2" and not student.refused, student
    # Without a roster each has a name, and no two have one.
    students, refused = collect.collect(tmp_path / "in", tmp_path / "bare")
    assert len({student.name for student in students}) == len(whose) and not refused


def test_what_fits_two_in_the_roster_or_contradicts_itself_is_nobodys(tmp_path):
    _class(tmp_path / "in", "Anna Schmidt", "Ada Byron")
    _write(tmp_path / "in" / "lovelaceada_124_9_ex03_linear.py", "2")
    _write(tmp_path / "in" / "Eve O'Neil_70000_assignsubmission_file_" / "ex03_linear.py", "2")
    (tmp_path / "roster.csv").write_text(CLASS, "utf-8")
    students, refused = collect.collect(tmp_path / "in", tmp_path / "out",
                                        roster=Roster.read(tmp_path / "roster.csv"))
    assert [student.name for student in students] == ["eve"]        # Moodle's number is of no person
    assert refused == {
        "Anna Schmidt": "schmidt1 and schmidt2 fit it in the roster",
        "Ada Byron": "nobody in the roster; the nearest is ada",
        "lovelaceada_124_9_ex03_linear.py": "its number or login is that of eve in the roster, its name that of ada"}


def test_two_of_one_name_have_two_names_without_a_roster(tmp_path):
    for number in (7, 8):
        _write(tmp_path / "in" / f"Anna Schmidt_{number}_assignsubmission_file_" / "ex03_linear.py", str(number))
    students, refused = collect.collect(tmp_path / "in", tmp_path / "out")
    assert [student.name for student in students] == ["Anna Schmidt (7)", "Anna Schmidt (8)"] and not refused


def test_an_anonymous_export_of_canvas_is_read(tmp_path):
    _write(tmp_path / "in" / "anon_aB3dE_998811_ex03_linear.py", "2")
    _write(tmp_path / "in" / "LATE_anon_xY3dE_998812_ex03_linear.py", "2")
    students, refused = collect.collect(tmp_path / "in", tmp_path / "out")
    assert [student.name for student in students] == ["anon_aB3dE", "anon_xY3dE"] and not refused


def test_a_zip_of_zips_and_a_text_are_told(tmp_path):
    _write(tmp_path / "in" / "ada.zip", "2")
    _write(tmp_path / "in" / "lovelaceada_70000_text.html", "hello")
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.write(tmp_path / "in" / "ada.zip", "ada.zip")
    with pytest.raises(ValueError, match="all.zip is an archive: unpack it, and name the folder"):
        collect.collect(tmp_path / "all.zip", tmp_path / "out")
    (tmp_path / "all.zip").rename(tmp_path / "in" / "eve.zip")
    students, refused = collect.collect(tmp_path / "in", tmp_path / "out")
    assert refused == {"lovelaceada_70000_text.html": "a text or a link that was handed in, and no file"}
    assert {student.name: student.refused for student in students} == {
        "ada": [], "eve": ["ada.zip: an archive in it is not read"]}


def test_who_is_in_no_roster_is_listed_once_with_the_nearest(tmp_path):
    _class(tmp_path / "in", "alovelace1", "eve")
    (tmp_path / "roster.csv").write_text(PEOPLE, "utf-8")
    students, refused = collect.collect(tmp_path / "in", tmp_path / "out",
                                        roster=Roster.read(tmp_path / "roster.csv"))
    assert [student.name for student in students] == ["eve"]
    assert refused == {"alovelace1": "nobody in the roster; the nearest is alovelace10"}


@pytest.mark.parametrize("text, words", [
    ("name,mail\nAda,a@b\n", "the column 'mail' has no meaning"), ("name,login\n,\n", "line 2: '' is no login"),
    ("login,id\nada,1\nbob,1\n", "line 3: '1' stands in line 2 too"),
    ("login\nada\nADA\n", "'ada' stands in line 2 too"),
    ("login\na/b\n", "'a/b' is no login")])
def test_a_roster_that_means_nothing_is_refused_by_its_line(text, words, tmp_path):
    (tmp_path / "roster.csv").write_text(text)
    with pytest.raises(ValueError, match=words):
        Roster.read(tmp_path / "roster.csv")


@pytest.mark.parametrize("name, fine", [
    ("O'Neil, Eve", True), ("Zoë", True), ("हिन्दी", True), ("東京 花子", True), ("Müller-Lüdenscheidt (B)", True),
    ("eve\u3164", False), ("e\u200bve", False), ("eve\u202e", False), ("", False), (".eve", False), ("a/b", False),
    ("学" * 85, True), ("学" * 86, False), ("<b>", False),
    ("(maximum)", False), ("b\u034fob", False), ("bob\ufe0f", False), ("bob\U000e0100", False), ("=1+1", False)])
def test_names_as_people_have_them(name, fine):
    assert sources.is_name(name) is fine


def test_a_word_in_two_scripts_is_marked():
    assert sources.scripts("b\u043eb") == {"LATIN", "CYRILLIC"} and not sources.scripts("Zoë Иванова")
