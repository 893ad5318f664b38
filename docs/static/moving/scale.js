// Lesson 09: one query's weights over 16 keys, softmax of q·k and softmax of q·k / √d, for more and more features.
moving.show("scale", {
  title: "One query's weights, without and with 1/√d",
  invitation: "Try 1024 features. How much does the largest weight leave for the other 15 keys, with and without? "
    + "With more features to compare, another key may lead.",
  height: () => 420,

  controls: ({rows}) => [{
    name: "head_dim", label: "head_dim d (features)", values: rows.map(row => row.head_dim), start: 64, say: String,
  }],

  numbers({rows}, {head_dim}) {
    const {scores, "mean largest": means} = rows.find(row => row.head_dim === head_dim);
    const weights = [moving.softmax(scores), moving.softmax(scores.map(score => score / Math.sqrt(head_dim)))];
    return {weights, largest: weights.map(row => Math.max(...row)), means};
  },

  say: ({largest, means}, {head_dim}, {queries}) =>
    `With ${head_dim} features the largest weight is ${largest[0].toFixed(3)} without the division and `
    + `${largest[1].toFixed(3)} with it; on average over ${queries.toLocaleString("en")} such queries `
    + `${means[0].toFixed(3)} and ${means[1].toFixed(3)}.`,

  draw(svg, width, {weights, largest}) {
    weights.forEach((row, i) => {
      const x = d3.scaleBand(d3.range(1, row.length + 1), [36, width - 12]).padding(0.2);
      const y = d3.scaleLinear([0, 1], [165 + 210 * i, 55 + 210 * i]);
      moving.axes(svg, {x, y, title: i ? "softmax of q·k / √d" : "softmax of q·k", across: i ? "key" : "", up: "weight",
                        formats: [key => width < 400 && key % 2 === 0 ? "" : key, null]});
      row.forEach((weight, key) => moving.bar(svg, i ? "c0" : "c1", x(key + 1), y(weight), x.bandwidth(),
                                              y(0) - y(weight)));
      const key = row.indexOf(largest[i]);
      moving.text(svg, x(key + 1) + x.bandwidth() / 2, y(largest[i]) - 5, largest[i].toFixed(3), "middle")
        .attr("class", "halo");
    });
  },
});
