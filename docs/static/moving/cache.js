// Lesson 11: what a model's weights and the cache of one sequence take, two bytes a number.
moving.show("cache", {
  title: "Memory for one sequence, as it grows",
  invitation: "Choose a model and slide to its full length. Whose cache is larger than its weights, and from where on?",
  height: () => 290,

  controls: ({models}) => [
    {name: "model", label: "model", values: Object.keys(models), start: "Llama 3.1 8B", say: String, choose: true},
    {name: "part", label: "tokens in the cache", values: d3.range(1, 129), start: 64,
     say: (part, {model}) => moving.count(models[model].full * part / 128)},
  ],

  numbers({models}, {model, part}) {
    const {layers, kv_heads, head_dim, full, parameters} = models[model], tokens = full * part / 128;
    const bytes = seq_len => 2 * layers * kv_heads * seq_len * head_dim * 2;        // batch 1, 2 bytes a value
    return {tokens, full, cache: bytes(tokens) / 1e9, most: bytes(full) / 1e9, weights: 2 * parameters / 1e9};
  },

  say: ({tokens, cache, weights}, {model}) =>
    `${model} with ${moving.count(tokens)} tokens: the cache takes ${cache.toFixed(3)} GB, which is `
    + `${(cache / weights).toFixed(3)} times the ${weights.toFixed(3)} GB of its weights.`,

  draw(svg, width, {tokens, full, cache, most, weights}) {
    const x = d3.scaleLinear([0, full], [44, width - 16]), y = d3.scaleLinear([0, weights + most], [246, 26]);
    const area = d3.area(([tokens]) => x(tokens), ([, low]) => y(low), ([, , high]) => y(high));
    moving.path(svg, "c0 faint", area([[0, 0, weights], [full, 0, weights]]));
    moving.path(svg, "c1 faint", area([[0, weights, weights], [full, weights, weights + most]]));
    moving.axes(svg, {x, y, across: "tokens in the cache", up: "memory (GB)", ticks: [width < 400 ? 3 : 5, 5]});
    moving.bar(svg, "c0", x(tokens) - 4, y(weights), 8, y(0) - y(weights));
    moving.bar(svg, "c1", x(tokens) - 4, y(weights + cache), 8, y(weights) - y(weights + cache));
    moving.text(svg, x(0) + 8, y(weights / 2) + 4, "weights");
    moving.text(svg, x(0) + 8, y(weights + most) + 14, "weights and cache");
  },
});
