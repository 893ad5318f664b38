// Which lessons a reader has done: a box at the end of each, a tick on the front page, kept in this browser alone.
const lesson = location.pathname.match(/\/notebooks\/(\w+)\.html$/);

function tick(key) {
  const box = Object.assign(document.createElement("input"), {type: "checkbox", checked: localStorage.getItem(key)});
  const label = Object.assign(document.createElement("label"), {className: "done"});
  box.addEventListener("change", () => box.checked ? localStorage.setItem(key, "yes") : localStorage.removeItem(key));
  label.append(box, "I have done this lesson");
  document.querySelector("article").append(label);
}

function list() {
  const front = document.getElementById("Lessons")?.closest("section");
  for (const link of front?.querySelectorAll("li a[href^='notebooks/']") ?? []) {
    const done = Object.assign(document.createElement("span"), {className: "done", textContent: "✓ done"});
    if (localStorage.getItem(`done ${link.getAttribute("href").slice(10, -5)}`)) link.parentElement.append(" ", done);
  }
}

try {
  if (lesson) tick(`done ${lesson[1]}`); else list();
} catch (error) {
  // Nothing can be kept in this browser, so nothing is asked.
}
