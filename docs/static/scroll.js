// What scrolls sideways can be reached by the tab key, and scrolled by the arrows.
function reach() {
  const boxes = [...document.querySelectorAll("article pre, .table-wrapper, div.math")];
  const wide = boxes.map(box => box.scrollWidth > box.clientWidth + 1);        // all looked at before one is changed
  boxes.forEach((box, i) => {
    if (wide[i]) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  });
}
addEventListener("load", reach);
addEventListener("resize", reach);
addEventListener("toggle", reach, true);
