// Lesson 15: one row of logits through a temperature, top-k and top-p, in the order that the lesson gives them.
moving.show("filters", {
  title: "What a temperature and two filters leave",
  invitation: "Set top-p to 0.9 and count what is left. Then raise the temperature to 2, and lower it to 0.5.",
  height: () => 590,

  controls: ({logits}) => [
    {name: "temperature", label: "temperature (no unit)", values: d3.range(1, 31).map(i => i / 10), start: 1,
     say: value => value.toFixed(1)},
    {name: "k", label: "top-k (tokens)", start: logits.length,
     values: [1, 2, 3, 5, 10, 20, 40, 100, 200, 400, 1000, 2000, logits.length],
     say: k => k === logits.length ? `${moving.count(k)}: all` : moving.count(k)},
    {name: "p", label: "top-p (probability)", values: d3.range(1, 21).map(i => i / 20), start: 1,
     say: p => p === 1 ? "1: all" : p.toFixed(2)},
  ],

  // The logits come sorted, so a filter keeps the first ones.
  numbers({logits}, {temperature, k, p}) {
    const kept = moving.softmax(logits.slice(0, k).map(logit => logit / temperature));
    let left = 0;
    for (let before = 0; left < kept.length && (before < p || p === 1); left++) before += kept[left];
    const sum = d3.sum(kept.slice(0, left));
    return {before: moving.softmax(logits), after: kept.slice(0, left).map(share => share / sum), left};
  },

  say: ({before, after, left}, at, {tokens, logits}) =>
    `Of ${moving.count(logits.length)} tokens ${moving.count(left)} ${left === 1 ? "is" : "are"} left. The likeliest, `
    + `${moving.quoted(tokens[0])}, had ${before[0].toFixed(3)} and now has ${after[0].toFixed(3)}.`,

  draw(svg, width, {before, after, left}, at, {tokens, prompt}) {
    const names = tokens.map(moving.quoted), y = d3.scaleBand(names, [46, 276]).padding(0.2);
    const most = Math.max(before[0], after[0]), x = d3.scaleLinear([0, most], [64, width - 56]);
    moving.axes(svg, {x, y, title: `The ten likeliest after ${moving.quoted(prompt)}`,
                      across: "probability", up: "token", ticks: [width < 400 ? 3 : 5, 10]});
    names.forEach((name, i) => {
      const now = after[i] || 0, end = x(Math.max(now, before[i]));
      moving.bar(svg, "c0", x(0), y(name), x(now) - x(0), y.bandwidth());
      moving.bar(svg, "was", x(0), y(name), x(before[i]) - x(0), y.bandwidth());
      moving.text(svg, end + 5, y(name) + y.bandwidth() / 2 + 4, i < left ? now.toFixed(3) : "out");
    });
    moving.text(svg, width - 12, 262, "outline: before", "end");

    const ranks = [...new Set(d3.range(0, 300).map(i => Math.round(before.length ** (i / 299))))];
    const across = d3.scaleLog([1, before.length], [64, width - 16]);
    const up = d3.scaleLog([1e-12, 1], [550, 380]).clamp(true);
    moving.axes(svg, {x: across, y: up, title: `All ${moving.count(before.length)} tokens`,
                      across: "rank of the token (log scale)", up: "probability (log scale)",
                      ticks: [[1, 10, 100, 1000], [1e-12, 1e-9, 1e-6, 1e-3, 1]],
                      formats: [moving.count, share => share < 0.001 ? share.toExponential() : share]});
    const line = shares => d3.line(rank => across(rank), rank => up(shares[rank - 1]))(
      [...ranks.filter(rank => rank < shares.length), shares.length]);
    moving.path(svg, "line was wide", line(before));
    moving.path(svg, "line c0", line(after));
    moving.dot(svg, "c0", across(left), up(after[left - 1]), 5);
    moving.text(svg, 72, 540, "grey: before; dot: last left");
  },
});
