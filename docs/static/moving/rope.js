// Lesson 07: a query and a key, each pair of features turned by place times its angle, and the score that results.
moving.show("rope", {
  title: "Two hands that turn with the place, and one score",
  invitation: "Move the place of the key first: everything turns, and the score stays. Then move the distance.",
  side: width => Math.min(width / 2 - 12, 220),        // of a clock
  height(width) { return 250 + this.side(width); },

  controls: ({words: [query, key]}) => [
    {name: "place", label: `place of the key, “${key}”`, values: d3.range(0, 101), start: 3, say: String},
    {name: "distance", label: `places from it to the query, “${query}”`, values: d3.range(0, 64), start: 1,
     say: String},
  ],

  numbers({query, key, angles}, {place, distance}) {
    const pair = (x, i, at) => {
      const cos = Math.cos(at * angles[i]), sin = Math.sin(at * angles[i]), [a, b] = [x[2 * i], x[2 * i + 1]];
      return [a * cos - b * sin, a * sin + b * cos];
    };
    const dots = (m, n) => angles.map((_, i) => {
      const [a, b] = pair(query, i, m), [c, d] = pair(key, i, n);
      return a * c + b * d;
    });
    const sum = numbers => numbers.reduce((a, b) => a + b, 0), parts = dots(place + distance, place);
    return {
      parts, score: sum(parts), curve: d3.range(0, 64).map(far => sum(dots(far, 0))),
      hands: angles.map((_, i) => [pair(query, i, place + distance), pair(key, i, place)]),
    };
  },

  say: ({parts, score}, {place, distance}, {words: [query, key]}) =>
    `“${query}” at place ${place + distance} asks “${key}” at place ${place}, ${distance} before it. `
    + parts.map((part, i) => `Pair ${i} adds ${moving.signed(part, 2)}`).join(", ").replace(", P", ", p")
    + `: the score is ${moving.signed(score, 2)}.`,

  draw(svg, width, {parts, score, curve, hands}, {distance}, {words, angles}) {
    const side = this.side(width), top = 68 + side;
    hands.forEach((pair, i) => {
      const middle = [width / 4 + i * width / 2, 52 + side / 2];
      const scale = (side / 2 - 28) / Math.max(...pair.map(hand => Math.hypot(...hand)));
      moving.text(svg, middle[0], 14, `pair ${i}: ${d3.format(".3~r")(angles[i])} rad/place`, "middle")
        .attr("class", "panel");
      moving.text(svg, middle[0], 34, `adds ${moving.signed(parts[i], 2)}`, "middle");
      moving.dot(svg, "face", ...middle, side / 2);
      pair.forEach(([a, b], which) => {
        const tip = [middle[0] + scale * a, middle[1] - scale * b], length = Math.hypot(a, b);
        moving.path(svg, which ? "hand c1 dashed" : "hand c0", d3.line()([middle, tip]));
        moving.dot(svg, which ? "c1" : "c0", ...tip, 4);
        moving.text(svg, tip[0] + 22 * a / length, tip[1] - 15 * b / length + 4, words[which], "middle")
          .attr("class", "halo");
      });
    });
    const x = d3.scaleLinear([0, 63], [36, width - 12]), most = Math.max(...curve.map(Math.abs));
    const y = d3.scaleLinear([-most, most], [top + 142, top + 50]).nice(4);
    moving.axes(svg, {x, y, title: "The score at every distance", across: "distance (places)", up: "score",
                      ticks: [7, 4]});
    moving.path(svg, "line c2", d3.line((_, i) => x(i), value => y(value))(curve));
    moving.dot(svg, "c2", x(distance), y(score), 6);
  },
});
