// Lesson 19: a line of weights after rounding to codes of a few bits, and what five held-out texts lose by it.
moving.show("bits", {
  title: "Fewer bits, coarser steps, and what a text loses",
  invitation: "Go from 8 bits down to 2. Where do the steps begin to show, and which method still meets the goal?",
  height: () => 484,

  controls: ({bits}) => [{name: "bits", label: "bits of a code", values: bits, start: 4, say: String}],

  numbers({lost}, {bits}) {
    return {lost: lost[bits],
            mean: Object.fromEntries(Object.entries(lost[bits]).map(([method, each]) => [method, d3.mean(each)]))};
  },

  say: ({mean}, {bits}, {wanted}) =>
    `With codes of ${bits} bits a weight has ${2 ** bits} values to choose from. The five texts cost `
    + Object.entries(mean).map(([method, loss]) => `${moving.signed(loss, 4)} bits per byte more with `
      + `${method === "plain" ? "plain rounding" : method}`).join(" and ")
    + `; the goal was less than ${wanted}.`,

  draw(svg, width, {lost, mean}, {bits}, {line, again, wanted, bits: every, lost: all}) {
    const x = d3.scaleLinear(d3.extent(line), [44, width - 16]);
    const y = d3.scaleLinear(d3.extent([...line, ...again[bits]]), [190, 46]);
    const stairs = d3.line((_, i) => x(line[i]), weight => y(weight)).curve(d3.curveStep);
    moving.axes(svg, {x, y, title: `A line of weights in ${2 ** bits} values`,
                      across: "weight", up: "weight read again"});
    moving.path(svg, "line was", stairs(line));
    moving.path(svg, "line c0", stairs(again[bits]));
    moving.text(svg, 54, 60, "grey: as they were");

    const methods = Object.keys(lost), rows = d3.scaleBand(methods, [306, 420]).padding(0.3);
    const most = Math.max(...every.flatMap(b => methods.flatMap(method => all[b][method])));
    const across = d3.scaleSqrt([0, most], [64, width - 24]);      // the losses of 2 bits dwarf the others
    moving.axes(svg, {x: across, y: rows, title: "What five held-out texts lose", up: "method",
                      across: "bits per byte more than in 16 (√ scale)",
                      ticks: [[0, 0.01, 0.05, 0.1, 0.15], 2]});
    moving.path(svg, "goal", d3.line()([[across(wanted), 300], [across(wanted), 420]]));
    moving.text(svg, across(wanted) + 4, 302, `goal: less than ${wanted}`);
    methods.forEach((method, i) => {
      const middle = rows(method) + rows.bandwidth() / 2;
      moving.bar(svg, `c${i} faint`, across(0), rows(method), across(mean[method]) - across(0), rows.bandwidth());
      for (const loss of lost[method]) moving.dot(svg, `c${i}`, across(Math.max(0, loss)), middle, 4);
    });
    moving.text(svg, width - 16, 476, "dots: texts; bars: means", "end");
  },
});
