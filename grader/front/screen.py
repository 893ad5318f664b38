"""Text on a terminal. Colour repeats what the words say; NO_COLOR and pipes get none."""

from rich.console import Console
from rich.text import Text

from grader.judge.verdict import Word

BAD = "|".join(word for word in Word if not word.fine)
STYLES = {
    rf"(?m)^.* · ({BAD})$": "bold red",
    r"(?m)\ball passed$": "green",
    rf"(?m)\b\d+ ({BAD})\b": "bold red",
    r"█+": "green",
    rf"(?m)^  (rule|{BAD}|line|hint|printed|again)\b": "bold",
    r"(?m)^  likely .*(\n {10}\S.*)*": "yellow",
    r"(?m)^Next: .*$": "bold cyan",
}


class Screen:
    """Prints the grader's texts, with colour where the terminal has it."""

    def __init__(self, console: Console | None = None):
        self.console, self._shown = console or Console(highlight=False), 0

    def progress(self, title: str):
        """A function for Grader.grade that says how far it is, on one line that goes again.

        Where a check takes no time nothing is seen of it; where there is no terminal it is silent.
        """
        if not self.console.is_terminal:
            return None

        def show(number: int, count: int) -> None:
            self._wipe()
            words = f"{title}: asking {number} of {count}"
            self.console.file.write(words)
            self.console.file.flush()
            self._shown = len(words)
        return show

    def _wipe(self) -> None:
        if self._shown:
            self.console.file.write("\r" + " " * self._shown + "\r")
            self._shown = 0

    def text(self, text: str) -> None:
        self._wipe()
        shown = Text(text)
        for pattern, style in STYLES.items():
            shown.highlight_regex(pattern, style)
        self.console.print(shown, soft_wrap=True)
