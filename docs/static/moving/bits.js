// Lesson 19: a line of weights after rounding to codes of a few bits, and what five held-out texts lose by it.
moving.show("bits", {
  title: "Fewer bits, coarser steps, and what a text loses",
  invitation: "Go from 8 bits down to 2. Where do the steps begin to show, and which method still meets the goal?",
  height: () => 484,

  controls: ({bits}) => [{name: "bits", label: "bits of a code", values: bits, start: 4, say: String}],

  numbers({lost, line, again}, {bits}) {
    const methods = Object.keys(lost[bits]);
    return {lost: lost[bits], levels: new Set(again[bits]).size,
            mean: Object.fromEntries(methods.map(method => [method, d3.mean(lost[bits][method])]))};
  },

  say: ({mean}, {bits}, {wanted}) =>
    `With codes of ${bits} bits a weight has ${2 ** bits} values to choose from. The five texts cost `
    + Object.entries(mean).map(([method, loss]) => `${moving.signed(loss, 4)} bits per byte more with `
      + `${method === "plain" ? "plain rounding" : method}`).join(" and ")
    + `; the goal was less than ${wanted}.`,

  draw(svg, width, {lost, mean}, {bits}, {line, again, wanted, bits: every, lost: all}) {
    const x = d3.scaleLinear(d3.extent(line), [44, width - 16]);
    const y = d3.scaleLinear(d3.extent([...line, ...again[bits]]), [190, 46]);
    moving.axes(svg, {x, y, title: `Weights in ${2 ** bits} steps`, across: "weight", up: "weight read again"});
    svg.append("path").attr("class", "line was").attr("d", d3.line((_, i) => x(line[i]), value => y(value))(line));
    svg.append("path").attr("class", "line c0").attr("d", d3.line((_, i) => x(line[i]), value => y(value)).curve(d3.curveStep)(again[bits]));

    const methods = Object.keys(lost), rows = d3.scaleBand(methods, [306, 420]).padding(0.3);
    const most = Math.max(...every.flatMap(b => methods.flatMap(method => all[b][method])));
    const across = d3.scaleSqrt([0, most], [64, width - 24]);      // the losses of 2 bits dwarf the others
    moving.axes(svg, {x: across, y: rows, title: "What five held-out texts lose", up: "method",
                      across: "bits per byte more than with 16 bits (√ scale)", ticks: [[0, 0.01, 0.05, 0.1, 0.15], 2]});
    svg.append("line").attr("class", "goal").attr("x1", across(wanted)).attr("x2", across(wanted))
      .attr("y1", 300).attr("y2", 420);
    moving.text(svg, across(wanted) + 4, 302, `goal: less than ${wanted}`);
    methods.forEach((method, i) => {
      const middle = rows(method) + rows.bandwidth() / 2;
      svg.append("rect").attr("class", `c${i} faint`).attr("x", across(0)).attr("y", rows(method))
        .attr("width", Math.max(0, across(mean[method]) - across(0))).attr("height", rows.bandwidth());
      for (const loss of lost[method])
        svg.append("circle").attr("class", `c${i}`).attr("cx", across(Math.max(0, loss))).attr("cy", middle).attr("r", 4);
    });
    moving.text(svg, width - 16, 476, "dots: texts; bars: means", "end");
  },
});
