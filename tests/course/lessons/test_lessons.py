"""The rules of a lesson that a program can see. What a lesson teaches, a reader has to judge."""

import base64
import io
import re
import subprocess
import sys

import pytest
from PIL import Image

from docs import solutions
from grader.author import links
from grader.course import chapters
from grader.course.lesson import HEADING, cells, dumps, exercises, prose, read
from tests.course.lessons.fresh_notebooks import same_text
from tests.course.lessons.phone import NOTE

MOST_BYTES, MOST_CODE_LINES, MOST_COLUMNS, MOST_TEXT_LINES = 500 * 1024, 20, 76, 15
LEAST_PROSE, LEAST_FIGURES, LEAST_PX, LEAST_LINKS = 0.40, 3, 9, 4
LESSON = pytest.mark.parametrize("chapter", chapters.chapters(), ids=lambda chapter: chapter.stem)


@LESSON
def test_metadata_is_clean(chapter):
    notebook = read(chapter)
    assert chapter.notebook.read_text("utf-8") == dumps(read(chapter)), "as nbformat writes it"
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert notebook["metadata"].keys() <= {"kernelspec", "language_info"}
    assert all(cell["metadata"].keys() <= {"tags", "exercise", "alt"} for cell in notebook["cells"])
    assert chapter.notebook.stat().st_size <= MOST_BYTES


@LESSON
def test_committed_executed(chapter):
    """Top to bottom, no errors, nothing on stderr, nothing that a page cannot show."""
    code = [cell for cell in cells(chapter, "code") if cell["source"].strip()]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    for output in (output for cell in code for output in cell["outputs"]):
        assert output["output_type"] != "error"
        assert output.get("name") != "stderr"
        assert not [kind for kind in output.get("data", {}) if "javascript" in kind or "plotly" in kind]


def test_lessons_find_the_course_from_any_folder_in_it():
    """Editors start kernels in different places; figures and imports are found from each."""
    found = {re.match(r"(?s).*?\nsys\.path\.insert[^\n]*", cells(chapter, "code")[0]["source"])[0]
             for chapter in chapters.chapters()}
    assert len(found) == 1, "all lessons find it in the same lines"
    script = found.pop() + "\nassert Path('../assets/course.mplstyle').exists()\nimport grader, exercises"
    for start in (".", "notebooks", "assets/map"):
        done = subprocess.run([sys.executable, "-c", script], cwd=chapters.ROOT / start, capture_output=True, text=True)
        assert done.returncode == 0, (start, done.stderr)


@LESSON
def test_cells_fit_a_page(chapter):
    for cell in cells(chapter, "code"):
        code = links.FETCHED.sub("", cell["source"])        # as wide as the repository's address
        assert len(code.splitlines()) <= MOST_CODE_LINES, code
        assert max(map(len, code.splitlines()), default=0) <= MOST_COLUMNS, code
    for cell in cells(chapter, "markdown"):
        folded = "<details" in cell["source"] or "|---" in cell["source"]
        assert folded or len(cell["source"].splitlines()) <= MOST_TEXT_LINES, cell["source"]


@LESSON
def test_mostly_prose_with_figures(chapter):
    prose, code = (sum(len(cell["source"]) for cell in cells(chapter, kind))
                   for kind in ("markdown", "code"))
    assert prose >= LEAST_PROSE * (prose + code)
    figures = [output for cell in cells(chapter, "code") for output in cell["outputs"]
               if "image/png" in output.get("data", {})]
    assert len(figures) >= LEAST_FIGURES


@LESSON
def test_figures_can_be_read_on_a_phone(chapter):
    """No text under 9 px on a page 360 px wide; run_notebooks has measured each figure as it was drawn."""
    for number, cell in enumerate(cells(chapter)):
        for output in cell.get("outputs", ()):
            if picture := output.get("data", {}).get("image/png"):
                note = Image.open(io.BytesIO(base64.b64decode(picture))).text.get(NOTE)
                assert note, f"cell {number}: not measured; run make notebooks CHAPTER={chapter.number}"
                assert float(note) >= LEAST_PX, f"cell {number}: text of {note} px"


def test_drawings_can_be_read_on_a_phone():
    for path in sorted((chapters.ROOT / "assets" / "flow").glob("*.svg")):
        text = path.read_text("utf-8")
        width = float(re.search(r'viewBox="\S+ \S+ (\S+)', text)[1])
        sizes = [float(size) for size in re.findall(r'font-size[=:]"?\s*([\d.]+)', text)]
        assert sizes and min(sizes) * min(1, 360 / width) >= LEAST_PX, (path.name, width, min(sizes))


LINK = re.compile(r"!?\[[^\]]*\]\([^)\s]+\)")


@LESSON
def test_what_is_named_is_linked(chapter):
    """Every paper, lesson and exercise file in the text is a link, and every link within the course leads somewhere."""
    links = 0
    for cell in cells(chapter, "markdown"):
        bare = LINK.sub("", cell["source"])
        assert not re.findall(r"(?i)arxiv[: ]*\d{4}\.\d{4,5}|\b\d{4}\.\d{5}\b", bare), cell["source"]
        assert not re.findall(r"(?i)\blessons? \d\d\b", bare), cell["source"]
        assert not re.findall(r"\bexercises/ex\d\d_\w+\.py", bare), cell["source"]
        for target in re.findall(r"\]\(([^)\s#]+)", cell["source"]):
            if target.startswith("http"):
                links += 1
            else:
                assert (chapter.notebook.parent / target).exists(), target
    assert links >= LEAST_LINKS


@LESSON
def test_images_are_local_and_described(chapter):
    text = prose(chapter)
    images = re.findall(r"!\[([^\]]*)\]\(([^)\s]+)", text)
    assert f"../assets/map/{chapter.number}.svg" in [target for _, target in images]
    assert "<img" not in text, "write images as Markdown, with alt text"
    for alt, target in images:
        assert alt.strip(), target
        assert (chapter.notebook.parent / target).is_file(), target


@LESSON
def test_equations_render_on_github(chapter):
    for cell in cells(chapter, "markdown"):
        assert not re.search(r"\\(tag|label|newcommand|def)\b", cell["source"])
        for line in cell["source"].splitlines():
            assert "$$" not in line or line.strip() == "$$", f"$$ must stand on its own line: {line}"


@LESSON
def test_every_exercise_has_hints_and_a_check(chapter):
    """Each part that the student writes is declared by an exercise, in a lesson with folded hints and checks."""
    text = prose(chapter)
    checks = [cell["source"] for cell in cells(chapter, "code") if "check(" in cell["source"]]
    written = set(solutions.parts(chapter))
    assert written
    for name in {part.partition(".")[0] for part in written}:
        assert re.search(rf"\b{name}\b", text), f"the lesson never speaks of {name}"
    declared = {part for exercise in exercises(chapter) for part in exercise.parts}
    assert declared == written, "the cell of each heading says so: {\"exercise\": {\"parts\": [\"Linear.forward\"]}}"
    for cell in cells(chapter):
        headings = HEADING.findall(cell["source"]) if cell["cell_type"] == "markdown" else []
        assert len(headings) == ("exercise" in cell["metadata"]), cell["source"]
    assert checks and all(f'"{chapter.stem}"' in source for source in checks)
    assert text.count("<details") >= 3
    assert text.count("<summary>Hint 1") <= len(HEADING.findall(text)), "### Exercise 1: …, which hints are found by"
    assert text.count("<details") == text.count("</details>")


@LESSON
def test_links_lead_somewhere(chapter):
    text = prose(chapter)
    for target in re.findall(r"(?<!!)\[[^\]]+\]\(([^)\s#]+)", text):
        if not target.startswith("http"):
            assert (chapter.notebook.parent / target).exists(), target


def test_texts_agree_but_for_rounding():
    assert same_text("loss 1.2345, step 10", "loss 1.2346, step 10")
    assert same_text("tensor([ 0.10, -1.0])", "tensor([0.10, -1.0])")
    assert not same_text("step 10", "step 11")
    assert not same_text("loss 1.23", "loss 1.29")
    assert not same_text("nan 1.0", "1.0 nan")
