// Loads the model and writes with it, beside the page, which stays quick. Messages come as {kind, …}.

import { Transformer, softmax } from "./model.js";
import { chances, choose } from "./sampling.js";
import { Tokenizer } from "./tokenizer.js";
import { readModel } from "./weights.js";

const SHOWN = 6;                            // tokens of the last distribution
const FRAME = 60;                           // milliseconds between two looks inside, which cost more than a token
let model, tokenizer, settings, stopped, latest;       // latest: the step that is shown

async function fetched(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${address} could not be loaded (${answer.status}).`);
  return answer;
}

async function load({ address, bytes, vocabulary }) {
  tokenizer ??= new Tokenizer(await (await fetched(vocabulary)).json());
  const reader = (await fetched(address)).body.getReader(), pieces = [];
  for (let had = 0; ;) {
    const { done, value } = await reader.read();
    if (done) break;
    pieces.push(value);
    had += value.length;
    postMessage({ kind: "progress", share: had / bytes });
  }
  model = new Transformer(readModel(await new Blob(pieces).arrayBuffer()));
  const { layers, heads } = model.config;
  postMessage({ kind: "ready", layers, heads });
}

// What the page shows of one step: the depths' likeliest token, the heads' weights, the likeliest next tokens and the
// chosen one, with what the present settings leave of each.
function seen({ look, logits, chosen }) {
  const best = probabilities => probabilities.reduce((best, p, id) => p > probabilities[best] ? id : best, 0);
  const depths = look.stream.map(x => {
    const probabilities = softmax(model.read(x)), id = best(probabilities);
    return { text: tokenizer.decode([id]), probability: probabilities[id] };
  });
  const probabilities = softmax(logits), kept = chances(logits, settings);
  const next = Array.from(probabilities.keys()).sort((a, b) => probabilities[b] - probabilities[a])
    .filter((id, rank) => rank < SHOWN || id === chosen).map(id => ({ text: tokenizer.decode([id]), probability: probabilities[id], chance: kept.get(id) ?? 0,
                  chosen: id === chosen }));
  return { depths, next, weights: look.weights };
}

// Lets messages in: a stop, another temperature.
const pause = () => new Promise(go => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = go;
  port2.postMessage(null);
});

async function write({ prompt, tokens }) {
  const ids = tokenizer.encode(prompt), most = model.config.max_seq_len, end = tokenizer.special.get("<|endoftext|>");
  if (!ids.length) throw new Error("Write a word or two for it to go on from.");
  if (ids.length >= most) throw new Error(`The model reads at most ${most} tokens, and your text has ${ids.length}.`);
  const cache = model.emptyCache(), decoder = new TextDecoder();
  const room = Math.min(tokens, most - ids.length), began = performance.now();
  stopped = false;
  for (const id of ids.slice(0, -1)) model.step(id, cache);
  postMessage({ kind: "prompt", tokens: ids.map(id => tokenizer.decode([id])) });

  let last = ids.at(-1), count = 0, ended = false, shown = 0;
  while (count < room && !ended && !stopped) {
    const look = { stream: [], weights: [] }, logits = model.step(last, cache, look);
    const chosen = last = choose(chances(logits, settings), Math.random()), due = performance.now() - shown > FRAME;
    ended = chosen === end;
    count += !ended;
    latest = { look, logits, chosen };
    postMessage({ kind: "token", token: tokenizer.decode([chosen]), seen: due && seen(latest),
                  text: ended ? "" : tokenizer.decode([chosen], decoder, true) });
    if (due) shown = performance.now();
    await pause();
  }
  postMessage({ kind: "done", count, rate: 1000 * count / (performance.now() - began), seen: seen(latest),
                why: ended ? "end" : count === most - ids.length ? "full" : "" });
}

onmessage = async ({ data }) => {
  try {
    if (data.kind === "load") await load(data);
    if (data.kind === "settings") {
      settings = data.settings;
      if (latest) postMessage({ kind: "again", seen: seen(latest) });
    }
    if (data.kind === "write") await write(data);
    if (data.kind === "stop") stopped = true;
  } catch (problem) {
    postMessage({ kind: "failed", why: problem.message });
  }
};
