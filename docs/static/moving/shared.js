// What all figures that move share: their frame, their controls, their axes.
//
// A figure's own file calls moving.show(name, figure), where figure has
//   title, invitation                     what it shows, and what to try: words
//   controls(data)                        [{name, label, values, start, say}]: a slider; with choose: true, a list
//   numbers(data, at)                     what is seen at a setting, by the course's own formula
//   say(numbers, at, data)                the same in a sentence
//   height(width)                         of the drawing, in px
//   draw(svg, width, numbers, at, data)   its panels
"use strict";

const moving = {
  figures: {},

  show(name, figure) {
    const place = document.querySelector(`.moving[data-figure="${name}"]`);
    if (!place) return;
    const data = JSON.parse(place.querySelector("script").textContent), at = {};
    moving.figures[name] = {figure, data, at};

    const add = (parent, tag, attributes = {}, text = "") => {
      const element = parent.appendChild(document.createElement(tag));
      for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
      element.textContent = text;
      return element;
    };
    place.setAttribute("role", "group");
    place.setAttribute("aria-labelledby", `moving-${name}`);
    add(place, "p", {class: "moving-title", id: `moving-${name}`}, figure.title);
    add(place, "p", {class: "moving-try"}, figure.invitation);
    const controls = add(place, "div", {class: "moving-controls"});
    const svg = add(place, "div", {class: "moving-drawing", "aria-hidden": "true"});
    const words = add(place, "p", {class: "moving-words", "aria-live": "polite"});

    for (const {name: key, label, values, start, say, choose} of figure.controls(data)) {
      const row = add(controls, "div", {class: "moving-control"}), id = `moving-${name}-${key}`;
      add(row, "label", {for: id}, label);
      const shown = choose ? null : add(row, "output", {for: id, "aria-live": "off"});
      const input = choose ? add(row, "select", {id}) : add(row, "input", {
        id, type: "range", min: 0, max: values.length - 1, step: 1});
      if (choose) for (const [i, value] of values.entries()) add(input, "option", {value: i}, say(value, at));
      input.value = values.indexOf(start);
      const take = () => { at[key] = values[input.value]; };
      const tell = () => {
        if (choose) return;
        shown.textContent = say(at[key], at);
        input.setAttribute("aria-valuetext", shown.textContent);
      };
      input.addEventListener("input", () => { take(); draw(); });
      take();
      row.tell = tell;
    }

    function draw() {
      for (const row of controls.children) row.tell();
      const numbers = figure.numbers(data, at);
      words.textContent = figure.say(numbers, at, data);
      svg.replaceChildren();
      figure.draw(d3.select(svg).append("svg").attr("width", width).attr("height", figure.height(width)),
                  width, numbers, at, data);
      const room = svg.getBoundingClientRect();
      for (const text of svg.querySelectorAll("text")) {      // a reader's own font may be wider than ours
        const {left, right} = text.getBoundingClientRect(), over = Math.max(room.left - left, right - room.right);
        const sides = getComputedStyle(text).textAnchor === "middle" ? 2 : 1;
        if (over > 0) d3.select(text).attr("textLength", right - left - sides * over)
          .attr("lengthAdjust", "spacingAndGlyphs");
      }
    }
    let width = 0;                      // told once the page is laid out: to ask before would lay it out twice
    new ResizeObserver(([{contentRect}]) => {
      if (contentRect.width !== width) { width = contentRect.width; draw(); }
    }).observe(svg);
  },

  // Axes for two scales, whose ranges are in the drawing's px, with a title and a label on each axis.
  axes(svg, {x, y, title = "", across, up, ticks = [5, 4], formats = [null, null]}) {
    const [left, right] = x.range(), low = Math.max(...y.range()), high = Math.min(...y.range());
    const put = (kind, axis, place, count, format) => {
      Array.isArray(count) ? axis.tickValues(count) : axis.ticks(count);
      if (format !== null) axis.tickFormat(format);
      svg.append("g").attr("class", kind).attr("transform", `translate(${place})`).call(axis.tickSizeOuter(0));
    };
    if (!y.bandwidth) put("grid", d3.axisLeft(y).tickSizeInner(left - right), [left, 0], ticks[1], "");
    put("axis", d3.axisBottom(x), [0, low], ticks[0], formats[0]);
    put("axis", d3.axisLeft(y), [left, 0], ticks[1], formats[1]);
    moving.text(svg, (left + right) / 2, low + 34, across, "middle");
    moving.text(svg, 2, high - 10, up);
    if (title) moving.text(svg, 2, high - 28, title).attr("class", "panel");
  },

  text(svg, x, y, words, anchor = "start") {
    return svg.append("text").attr("x", x).attr("y", y).attr("text-anchor", anchor).text(words);
  },

  bar: (svg, kind, x, y, width, height) => svg.append("rect").attr("class", kind)
    .attr("x", x).attr("y", y).attr("width", Math.max(0, width)).attr("height", Math.max(0, height)),
  dot: (svg, kind, x, y, radius) => svg.append("circle").attr("class", kind)
    .attr("cx", x).attr("cy", y).attr("r", radius),
  path: (svg, kind, d) => svg.append("path").attr("class", kind).attr("d", d),

  count: number => number.toLocaleString("en"),
  signed: (number, digits) => number.toFixed(digits).replace("-", "−").replace(/^−(0\.0+)$/, "$1"),
  quoted: token => `“${token.replace(/\n/g, "⏎")}”`,

  softmax(scores) {
    const largest = Math.max(...scores), weights = scores.map(score => Math.exp(score - largest));
    const sum = weights.reduce((a, b) => a + b, 0);
    return weights.map(weight => weight / sum);
  },
};
