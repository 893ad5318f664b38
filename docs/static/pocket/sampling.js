// Lesson 15: which token comes next.

import { softmax } from "./model.js";

// Each token's chance, once temperature and filters have had their say; equals in the order of their ids.
// topK 0 and topP 1 keep all. A temperature of 0 leaves the likeliest alone.
export function chances(logits, { temperature, topK, topP }) {
  const order = Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a] || a - b);
  if (temperature === 0) return new Map([[order[0], 1]]);
  const kept = topK ? order.slice(0, topK) : order;
  let chance = softmax(kept.map(id => logits[id] / temperature));
  if (topP < 1) {
    let before = 0, count = 0;
    while (count < kept.length && before < topP) before += chance[count++];
    chance = chance.slice(0, count).map(value => value / before);
  }
  return new Map(chance.map((value, i) => [kept[i], value]));
}

// The token that u in [0, 1) points at, when each takes its chance of [0, 1).
export function choose(chances, u) {
  let below = 0, last;
  for (const [id, chance] of chances) {
    below += chance;
    last = id;
    if (below > u) break;
  }
  return last;
}
