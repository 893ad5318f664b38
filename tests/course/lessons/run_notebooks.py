"""Run lessons on fresh stubs, top to bottom, and keep their outputs: make notebooks.

python -m tests.course.lessons.run_notebooks [CHAPTER …]
"""

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from docs import lessons
from grader.course import chapters
from tests.course.stubs import fresh

METADATA = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"}}


def run(path: Path) -> None:
    """Execute one notebook; the file appears whole or stays as it was."""
    notebook = nbformat.read(path, as_version=4)
    hook = f"import sys; sys.path.insert(0, {str(chapters.ROOT)!r}); import tests.course.lessons.phone; sys.path.pop(0)"
    NotebookClient(notebook, timeout=300, kernel_name="python3", extra_arguments=[
        f"--IPKernelApp.exec_lines={hook}"], resources={"metadata": {"path": str(path.parent)}}).execute()
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict(
            {key: value for key, value in cell.metadata.items() if key in ("tags", "exercise", "alt")})
        if "outputs" in cell:
            cell.outputs = described(cell, _joined(cell.outputs))
    draft = path.with_suffix(".part")
    nbformat.write(notebook, draft)
    os.replace(draft, path)


def described(cell: dict, outputs: list) -> list:
    """Outputs whose figures carry the words for those who do not see them, where nbconvert looks for them."""
    for output in outputs:
        if "image/png" in output.get("data", {}):
            output["metadata"] = {"image/png": {"alt": lessons.described(cell)}}
    return outputs


def _joined(outputs: list) -> list:
    """Outputs without metadata, neighbouring prints as one: how they were cut differs by chance."""
    joined = []
    for output in outputs:
        output.get("metadata", {}).clear()
        if joined and output.output_type == "stream" and joined[-1].get("name") == output.name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def main() -> None:
    chosen = [chapters.find(name) for name in sys.argv[1:]] or chapters.chapters()
    with tempfile.TemporaryDirectory(prefix="stubs-") as folder:
        os.environ["COURSE_EXERCISES"] = str(fresh(Path(folder)))
        for chapter in chosen:
            print(f"running {chapter.notebook.name}", flush=True)
            run(chapter.notebook)


if __name__ == "__main__":
    main()
