// What scrolls sideways can be reached by the tab key, and scrolled by the arrows.
function reach() {
  for (const box of document.querySelectorAll("article pre, .table-wrapper, div.math")) {
    if (box.scrollWidth > box.clientWidth + 1) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}
addEventListener("load", reach);
addEventListener("resize", reach);
addEventListener("toggle", reach, true);
