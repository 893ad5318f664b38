"""Text on a terminal. Colour repeats what the words say; NO_COLOR and pipes get none."""

from rich.console import Console
from rich.text import Text

STYLES = {
    r"(?m)^.* · (wrong|error|forbidden|timeout|crashed)$": "bold red",
    r"(?m)\ball passed$": "green",
    r"(?m)\b\d+ (wrong|error|forbidden|timeout|crashed)\b": "bold red",
    r"█+": "green",
    r"(?m)^  (rule|wrong|error|forbidden|timeout|crashed|line|hint|printed|again)\b": "bold",
    r"(?m)^  likely .*(\n {10}\S.*)*": "yellow",
    r"(?m)^Next: .*$": "bold cyan",
}


class Screen:
    """Prints the grader's texts, with colour where the terminal has it."""

    def __init__(self, console: Console | None = None):
        self.console = console or Console(highlight=False)

    def text(self, text: str) -> None:
        shown = Text(text)
        for pattern, style in STYLES.items():
            shown.highlight_regex(pattern, style)
        self.console.print(shown, soft_wrap=True)
