"""How large the smallest text of a figure is on a phone: written into each PNG when a lesson is run.

Loaded into a notebook's kernel by run_notebooks. A page 360 px wide shrinks what is wider, and its text.
"""

from IPython.core import pylabtools
from matplotlib.text import Text

PAGE = 360                  # px
NOTE = "smallest text at 360 px"


def smallest_text(figure) -> float:
    """The height in px of the smallest font in a figure, on a page PAGE px wide."""
    width = figure.get_tightbbox().width            # in inches, as it is saved
    sizes = [text.get_fontsize() for text in figure.findobj(Text)
             if text.get_visible() and text.get_text().strip()]
    return min(sizes, default=72) / 72 * min(PAGE / width, figure.dpi)


def _print_figure(figure, fmt="png", **options):
    if fmt == "png":
        options["metadata"] = {NOTE: f"{smallest_text(figure):.1f}"}
    return _plain(figure, fmt=fmt, **options)


_plain, pylabtools.print_figure = pylabtools.print_figure, _print_figure
