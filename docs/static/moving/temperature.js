// Lesson 05: one set of scores at a temperature, p = softmax(scores / T), and how unsure that is.
moving.show("temperature", {
  title: "The same four scores at any temperature",
  invitation: "Try 0.05, then 50. Where does one word have everything, and where do all have nearly the same?",
  height: () => 240,

  controls: () => [{
    name: "temperature", label: "temperature (no unit)", start: 1, say: value => String(value),
    values: Array.from({length: 61}, (_, i) => Number((10 ** (-1.3 + i / 20)).toPrecision(2))),
  }],

  numbers({scores}, {temperature}) {
    const shares = moving.softmax(scores.map(score => score / temperature));
    return {shares, entropy: shares.reduce((sum, p) => p > 0 ? sum - p * Math.log(p) : sum, 0)};
  },

  say: ({shares, entropy}, {temperature}, {words}) => {
    const most = shares.indexOf(Math.max(...shares)), least = shares.indexOf(Math.min(...shares));
    return `At temperature ${temperature} the likeliest word, ${words[most]}, has ${shares[most].toFixed(3)}, and `
      + `${words[least]} has ${shares[least].toFixed(3)}. The entropy is ${entropy.toFixed(3)} nats, `
      + `of at most ${Math.log(shares.length).toFixed(3)}.`;
  },

  draw(svg, width, {shares}, at, {words, scores}) {
    const x = d3.scaleLinear([0, 1], [84, width - 44]), y = d3.scaleBand(words, [26, 200]).padding(0.25);
    const label = Object.fromEntries(words.map((word, i) => [word, `${word} (${scores[i]})`.replace("-", "−")]));
    moving.axes(svg, {x, y, across: "probability", up: "next word (its score)", formats: [null, word => label[word]]});
    words.forEach((word, i) => {
      moving.bar(svg, "c0", x(0), y(word), x(shares[i]) - x(0), y.bandwidth());
      moving.text(svg, x(shares[i]) + 5, y(word) + y.bandwidth() / 2 + 4, shares[i].toFixed(3));
    });
  },
});
