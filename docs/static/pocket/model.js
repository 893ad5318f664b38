// A Llama's forward pass, one token at a time, beside lesson 13. A vector is a Float32Array; a matrix, too, one row
// (the weights of one output) after the other.

// Lesson 03: y = x Wᵀ, each output the dot product of x with its own row.
function linear(x, weight) {
  const n = x.length, y = new Float32Array(weight.length / n);
  for (let o = 0, at = 0; o < y.length; o++) {
    let sum = 0;
    for (let i = 0; i < n; i++) sum += x[i] * weight[at++];
    y[o] = sum;
  }
  return y;
}

// Lesson 04: divided by the root of the mean square, times a weight for each feature.
function rmsNorm(x, weight, eps) {
  let squares = 0;
  for (const value of x) squares += value * value;
  const scale = 1 / Math.sqrt(squares / x.length + eps);
  return x.map((value, i) => value * scale * weight[i]);
}

// Lesson 05: exponentials, less the largest score, divided by their sum.
export function softmax(scores) {
  const most = scores.reduce((a, b) => Math.max(a, b)), up = scores.map(score => Math.exp(score - most));
  const sum = up.reduce((a, b) => a + b);
  return up.map(value => value / sum);
}

// Lesson 07: features i and i + half are a hand on a clock; it turns by position · base^(−i / half).
function rotate(head, position, base) {
  const half = head.length / 2;
  for (let i = 0; i < half; i++) {
    const angle = position * base ** (-i / half), cos = Math.cos(angle), sin = Math.sin(angle);
    const a = head[i], b = head[i + half];
    head[i] = a * cos - b * sin;
    head[i + half] = a * sin + b * cos;
  }
}

// Lesson 08: SwiGLU, where one half of the hidden features opens and shuts the other.
function feedForward(x, { gate, up, down }) {
  const open = linear(x, gate), value = linear(x, up);
  return linear(open.map((z, i) => z / (1 + Math.exp(-z)) * value[i]), down);
}

// Lesson 09, grouped as in lesson 10: a query looks at all tokens so far, whose keys and values lesson 11 keeps.
// `looked`, where it is given, gets each head's weights.
function attention(x, position, { q_proj, k_proj, v_proj, o_proj }, { heads, kv_heads, head_dim, rope_base },
                   cache, looked) {
  const q = linear(x, q_proj), k = linear(x, k_proj), part = (y, head) => y.subarray(head * head_dim, (head + 1) * head_dim);
  for (let head = 0; head < heads; head++) rotate(part(q, head), position, rope_base);
  for (let head = 0; head < kv_heads; head++) rotate(part(k, head), position, rope_base);
  cache.keys.push(k);
  cache.values.push(linear(x, v_proj));

  const mixed = new Float32Array(heads * head_dim);
  for (let head = 0; head < heads; head++) {
    const query = part(q, head), shared = Math.floor(head * kv_heads / heads), mix = part(mixed, head);
    const weights = softmax(cache.keys.map(keys => {
      let score = 0;
      const key = part(keys, shared);
      for (let i = 0; i < head_dim; i++) score += query[i] * key[i];
      return score / Math.sqrt(head_dim);
    }));
    weights.forEach((weight, token) => {
      const value = part(cache.values[token], shared);
      for (let i = 0; i < head_dim; i++) mix[i] += weight * value[i];
    });
    looked?.push(weights);
  }
  return linear(mixed, o_proj);
}

const add = (x, y) => x.map((value, i) => value + y[i]);

// Lesson 13, for the one shape of it that the pocket model has.
export class Transformer {
  constructor({ config, weights }) {
    this.config = config;
    this.weights = weights;
    const named = (start, parts) => Object.fromEntries(parts.map(part => [part, weights[`${start}.${part}.weight`]]));
    this.blocks = Array.from({ length: config.layers }, (_, n) => ({
      ...named(`blocks.${n}`, ["norm1", "norm2"]),
      attention: named(`blocks.${n}.attention`, ["q_proj", "k_proj", "v_proj", "o_proj"]),
      feedForward: named(`blocks.${n}.feed_forward`, ["gate", "up", "down"]),
    }));
  }

  // Lesson 11: nothing read yet.
  emptyCache() {
    return this.blocks.map(() => ({ keys: [], values: [] }));
  }

  // The logits of the token after this one, the next that the cache's text has. `look`, where it is given, gets the
  // residual stream at each depth, and each block's heads' weights.
  step(id, cache, look) {
    const { d_model, norm_eps, max_seq_len } = this.config, position = cache[0].keys.length;
    if (position >= max_seq_len) throw new Error(`The model reads at most ${max_seq_len} tokens.`);
    let x = this.weights["embedding.weight"].slice(id * d_model, (id + 1) * d_model);       // lesson 02
    look?.stream.push(x);
    this.blocks.forEach((block, n) => {                                                     // lesson 12
      const looked = look && [];
      x = add(x, attention(rmsNorm(x, block.norm1, norm_eps), position, block.attention, this.config, cache[n], looked));
      x = add(x, feedForward(rmsNorm(x, block.norm2, norm_eps), block.feedForward));
      look?.stream.push(x);
      look?.weights.push(looked);
    });
    return this.read(x);
  }

  // The logits that the residual stream stands for: the last norm, and the embedding's own matrix, as they are tied.
  read(x) {
    return linear(rmsNorm(x, this.weights["norm.weight"], this.config.norm_eps), this.weights["embedding.weight"]);
  }
}
