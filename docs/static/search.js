// The search page. Pagefind finds pages and, in them, sections. A page that lies on a disk may not fetch
// Pagefind's files: there, Sphinx's own index finds pages.
const root = new URL(document.documentElement.dataset.content_root, location.href);
// Words that say nothing of what is asked. Pagefind looks for pages that hold all the others.
const small = new Set(("a an and are be by can do does for from get happens has have how i in is it its long many me mean "
  + "much my of on one or should so that the them there this to use used vs was we what when where which who why will "
  + "with work works you your").split(" "));

// The pages that answer a question best, each with its sections: [{title, url, sections: [{title, url, excerpt}, …]}]
// Pagefind looks for pages that hold every word. A page that lacks one of them may answer as well, and counts less.
async function answers(question) {
  const pagefind = await import(new URL("pagefind/pagefind.js", root));
  await pagefind.options({ranking: {termSimilarity: 10}});     // "see" is in "seed", and means something else
  const said = question.toLowerCase().replace(/[?!,;:"]/g, " ").split(/\s+/).filter(Boolean);
  const telling = said.filter(word => word.length > 1 && !small.has(word));
  const words = telling.length ? telling : said;
  const fewer = words.length > 1 ? words.map(left => words.filter(word => word !== left)) : [];
  const best = new Map();
  for (const some of [words, ...fewer])
    for (const found of (await pagefind.search(some.join(" "))).results) {
      const score = found.score * some.length / words.length;
      if (!(best.get(found.id)?.score >= score)) best.set(found.id, {score, found});
    }
  const first = [...best.values()].sort((a, b) => b.score - a.score).slice(0, 10);
  const pages = await Promise.all(first.map(async ({found}) => {
    const page = await found.data();
    const named = part => words.filter(word => part.title.toLowerCase().includes(word)).length;
    const weight = part => part.weighted_locations.reduce((sum, place) => sum + place.balanced_score, 0);
    const sections = page.sub_results.sort((a, b) => named(b) - named(a) || weight(b) - weight(a)).slice(0, 3)
      .map(part => ({...part, ...term(page, part, words)}));
    return {title: page.meta.title, url: sections[0]?.url ?? page.url, sections, near: page.sub_results.some(near)};
  }));
  return pages.filter(page => page.near);

  // Pagefind cuts a word that stands nowhere until it finds something, which answers nothing.
  function near(part) {
    return [...part.excerpt.matchAll(/<mark>(.*?)<\/mark>/g)].some(([, mark]) =>
      words.some(word => mark.toLowerCase().includes(word.slice(0, 4))));
  }
}

// In the glossary each term has an anchor of its own, within a section of many: the one that is asked for, or the one
// in whose meaning most is found.
function term(page, part, words) {
  const heaviest = part.weighted_locations.reduce((a, b) => b.balanced_score > a.balanced_score ? b : a);
  const terms = page.anchors.filter(({element, location}) => element === "dt" && location > (part.anchor?.location ?? 0));
  const word = terms.find(({text}) => text.toLowerCase().split(/[^\p{L}\p{N}]+/u).some(said => words.includes(said)))
    ?? terms.filter(({location}) => location <= heaviest.location).pop();
  return word && {title: word.text.trim(), url: `${page.url}#${word.id}`};
}

function element(name, content, ...attributes) {
  const made = Object.assign(document.createElement(name), ...attributes);
  made.append(...content);
  return made;
}

// The sign of a root is indexed in words, too, which are not to be read.
const inWords = /(<mark>)?square(<\/mark>)? (<mark>)?root(<\/mark>)? (<mark>)?sqrt\.?(<\/mark>)? (?=√)/g;

function show(pages) {
  document.getElementById("search-results").replaceChildren(element("ol", pages.map(page => element("li", [
    element("a", [page.title], {href: page.url}),
    element("ul", page.sections.map(part => element("li", [
      element("a", [part.title], {href: part.url}),
      element("p", [], {innerHTML: part.excerpt.replace(inWords, "")})])))]))));    // escaped by Pagefind
}

// Sphinx's own search reads the question from the address, and writes below the same heading.
async function sphinx() {
  for (const file of ["_static/language_data.js", "_static/searchtools.js", "searchindex.js"])
    await new Promise(done => document.body.append(element("script", [], {src: new URL(file, root), onload: done})));
}

async function search(question) {
  const said = document.getElementById("search-said");
  for (const box of document.querySelectorAll("input[name=q]")) box.value = question;
  said.textContent = "Searching …";
  try {
    if (location.protocol === "file:") throw new Error("no page on a disk may fetch another");
    const pages = await answers(question);
    said.textContent = pages.length ? `What answers “${question}” best:` : `Nothing answers “${question}”.`;
    show(pages);
  } catch (error) {
    said.textContent = "Here, where pages cannot fetch files, only whole pages are found. On a server, sections are.";
    await sphinx();
  }
}

const asked = new URLSearchParams(location.search).get("q");
if (asked) search(asked);
