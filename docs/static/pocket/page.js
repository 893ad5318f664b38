// The page's side of the pocket model: it asks, and shows what flows through the model's parts.

const place = document.getElementById("pocket"), find = what => place.querySelector(what);
const form = find("form"), prompt = find("#pocket-prompt"), stop = find("[name=stop]"), one = find("[name=one]");
const files = new URL(place.dataset.files, document.baseURI), TOKENS = 120, CHIPS = 60;
let worker, loaded, tokens, last, asked;

function say(words) {
  find(".said").textContent = words;
}

// The buttons stay where the keyboard is: those that do nothing now say so, and are not switched off.
let working = false;
function busy(is) {
  working = is;
  place.setAttribute("aria-busy", is);
  stop.setAttribute("aria-disabled", !is);
  for (const button of [form.querySelector("[type=submit]"), one]) button.setAttribute("aria-disabled", is);
}

// A token as it is shown: spaces and ends of lines can be seen.
const visible = token => token.replaceAll(" ", "·").replaceAll("\n", "⏎").replaceAll("\t", "⇥");
const percent = chance => `${(100 * chance).toFixed(chance < 0.0995 ? 1 : 0)} %`;

function element(name, words, className = "") {
  const made = document.createElement(name);
  made.textContent = words;
  made.className = className;
  return made;
}

// A row of a table: words, then chances as bars.
function row(words, ...bars) {
  const made = document.createElement("tr");
  made.append(...words.map(word => element("td", word)), ...bars.map(chance => {
    const cell = element("td", chance ? percent(chance) : "–", "bar");
    cell.style.setProperty("--share", chance);
    return cell;
  }));
  return made;
}

// The map's own ends, by what they say until then: what goes in, and the three likeliest to come out, each with a bar.
const [goesIn, ...comesOut] = ["“the cat”", "sat", "ran", "is"].map(words =>
  [...document.querySelectorAll(".map text")].find(text => text.textContent === words));

// The last token's step: what the chosen head looks at, what each depth would say, what comes next.
function show() {
  if (!last) return;
  const weights = last.weights[find("[name=block]").value][find("[name=head]").value];
  const first = Math.max(0, weights.length - CHIPS);
  find(".chips").replaceChildren(...tokens.slice(first, weights.length).map((token, i) => {
    const chip = element("span", visible(token), "chip");
    chip.style.setProperty("--share", weights[first + i]);
    chip.title = `looked at with ${percent(weights[first + i])}`;
    return chip;
  }));
  find(".depths tbody").replaceChildren(...last.depths.map(({ text, probability }, depth) =>
    row([depth ? `block ${depth - 1}` : "embedding", visible(text)], probability)));
  find(".next tbody").replaceChildren(...last.next.map(({ text, probability, chance, chosen }) => {
    const made = row([visible(text) + (chosen ? " ✓" : "")], probability, chance);
    made.classList.toggle("chosen", chosen);
    return made;
  }));
  goesIn.textContent = visible(tokens[weights.length - 1]).slice(0, 10);
  comesOut.forEach((word, i) => {
    word.textContent = visible(last.next[i].text).slice(0, 5);
    word.nextElementSibling.setAttribute("width", 60 * last.next[i].probability);
  });
  find(".boxes").hidden = false;
}

let drawn;
function soon(seen) {               // at most once a frame
  last = seen;
  drawn ??= requestAnimationFrame(() => { drawn = undefined; show(); });
}

const told = {
  progress: ({ share }) => { find("progress").value = share; },
  ready({ layers, heads }) {
    find("progress").hidden = true;
    loaded = true;
    for (const [name, count] of [["block", layers], ["head", heads]])
      if (!find(`[name=${name}]`).length)
        find(`[name=${name}]`).append(...Array.from({ length: count }, (_, n) => element("option", n)));
    say("The model is here.");
    begin();
  },
  prompt({ tokens: read }) { tokens = read; },
  again: ({ seen }) => soon(seen),
  token({ token, text, seen }) {
    find(".written").append(text);
    find(".text").scrollTop = find(".text").scrollHeight;
    tokens.push(token);
    if (seen) soon(seen);
  },
  done({ count, rate, why, seen }) {
    if (seen) soon(seen);
    busy(false);
    find(".heard").textContent = find(".written").textContent;      // once, to those who listen
    const ends = { full: " Its window is full.", end: " It ended its text." };
    say(`${count} ${count === 1 ? "token" : "tokens"} written, ${Math.round(rate)} a second.${ends[why] ?? ""}`);
  },
  failed({ why }) {
    find("progress").hidden = true;
    if (!loaded) { worker?.terminate(); worker = undefined; }
    busy(false);
    say(`It did not work: ${why}`);
  },
};

function load() {
  if (location.protocol === "file:") {
    told.failed({ why: "a browser reads the model only from a server. In this folder, run python -m http.server " +
      "and open http://localhost:8000." });
    return;
  }
  try {
    worker = new Worker(new URL("worker.js", files), { type: "module" });
  } catch (problem) {
    told.failed({ why: problem.message });
    return;
  }
  worker.onmessage = ({ data: { kind, ...rest } }) => told[kind](rest);
  worker.onerror = problem => told.failed({ why: problem.message ?? "this browser runs no modules in workers." });
  const { value, dataset } = form.querySelector("[name=bits]:checked");
  find("progress").hidden = false;
  say("Loading the model …");
  set();
  worker.postMessage({ kind: "load", address: new URL(`pocket-${value}.safetensors`, files).href,
                       bytes: Number(dataset.bytes), vocabulary: new URL("tokenizer.json", files).href });
}

function begin() {
  find(".given").textContent = asked.prompt;
  find(".written").textContent = "";
  say("Writing …");
  worker.postMessage({ kind: "write", ...asked });
}

// count: how many tokens to write. One token goes on from what stands there, if the prompt is the same.
function write(count) {
  if (working) return;
  const before = find(".given").textContent + find(".written").textContent;
  const goesOn = count === 1 && before.startsWith(prompt.value) && last;
  asked = { prompt: goesOn ? before : prompt.value, tokens: count };
  busy(true);
  if (loaded) begin();
  else load();
}

function set() {
  const settings = {};
  for (const slider of place.querySelectorAll("[type=range]")) {
    settings[slider.name] = Number(slider.value);
    slider.previousElementSibling.textContent = slider.name === "topK" && slider.value === "0" ? "off" : slider.value;
  }
  worker?.postMessage({ kind: "settings", settings });
}

form.addEventListener("submit", event => { event.preventDefault(); write(TOKENS); });
one.addEventListener("click", () => write(1));
stop.addEventListener("click", () => working && worker?.postMessage({ kind: "stop" }));
find(".bits").addEventListener("change", () => {        // other weights: another worker, loaded when asked for
  worker?.terminate();
  worker = undefined;
  loaded = false;
  find("progress").hidden = true;
  busy(false);
  say("These weights are loaded once you press Write.");
});
find(".sliders").addEventListener("input", set);
find(".heads").addEventListener("change", show);
