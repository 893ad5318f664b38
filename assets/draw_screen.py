"""Draw assets/screen.svg: a real screen of a failure being explained, for the README."""

import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich import _export_format, terminal_theme  # noqa: E402
from rich.console import Console  # noqa: E402

from grader.course import chapters  # noqa: E402
from grader.front import report  # noqa: E402
from grader.front.screen import Screen  # noqa: E402
from grader.judge.engine import Grader  # noqa: E402

COMMAND = "$ python -m grader check linear"
MISTAKE = ("weight = torch.empty(out_features, in_features)",
           "weight = torch.empty(in_features, out_features)")


def main() -> None:
    chapter = chapters.find("linear")
    console = Console(record=True, width=94, file=open("/dev/null", "w"), force_terminal=True,
                      highlight=False, color_system="truecolor")
    with tempfile.TemporaryDirectory() as folder, Grader() as grader:
        source = chapter.solution.read_text("utf-8")
        assert source.count(MISTAKE[0]) == 1
        (Path(folder) / chapter.exercise.name).write_text(source.replace(*MISTAKE), "utf-8")
        results = {chapter: list(grader.grade(chapter, Path(folder)))}
        screen = Screen(console)
        screen.text(COMMAND)
        screen.text(report.row(chapter, results[chapter]) + "\n")
        screen.text(report.board(results, grader.setting, None))
    # System fonts only: a picture must not need the network.
    template = re.sub(r"@font-face \{\{.*?\}\}\n", "", _export_format.CONSOLE_SVG_FORMAT, flags=re.S)
    template = template.replace("Fira Code", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono")
    svg = console.export_svg(title="A failure, explained", code_format=template,
                             theme=terminal_theme.MONOKAI, unique_id="screen")
    (chapters.ROOT / "assets" / "screen.svg").write_text(svg, "utf-8")


if __name__ == "__main__":
    main()
