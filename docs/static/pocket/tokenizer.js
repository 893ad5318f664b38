// Lesson 01's byte-pair encoding: a text's bytes, merged in the order in which the merges were learned.

// GPT-2's pieces: a word with the space before it, a number, a run of other signs, white space.
const PIECES = new RegExp([
  "'(?:[sdmt]|ll|ve|re)", " ?\\p{L}+", " ?\\p{N}+", " ?[^\\p{White_Space}\\p{L}\\p{N}]+",
  "\\p{White_Space}+(?!\\P{White_Space})", "\\p{White_Space}+"].join("|"), "gu");

// GPT-2 writes each byte as a character that can be seen: most as themselves, the others from 256 on.
function byteLetters() {
  const itself = byte => byte >= 33 && byte <= 126 || byte >= 161 && byte <= 172 || byte >= 174;
  let others = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(itself(byte) ? byte : others++));
}

export class Tokenizer {
  // file: what a tokenizer.json holds.
  constructor(file) {
    this.letters = byteLetters();
    this.ids = new Map(Object.entries(file.model.vocab));
    this.ranks = new Map(file.model.merges.map(([left, right], rank) => [`${left} ${right}`, rank]));
    this.special = new Map(file.added_tokens.map(({ content, id }) => [content, id]));
    const byteOf = new Map(this.letters.map((letter, byte) => [letter, byte]));
    this.bytes = [];
    for (const [token, id] of this.ids) this.bytes[id] = Uint8Array.from(token, letter => byteOf.get(letter));
    for (const [token, id] of this.special) this.bytes[id] = new TextEncoder().encode(token);
  }

  encode(text) {
    const marks = [...this.special.keys()].map(token => token.replace(/[|\\{}()[\]^$+*?.]/g, "\\$&"));
    return text.split(new RegExp(`(${marks.join("|")})`)).flatMap(part => this.special.has(part)
      ? [this.special.get(part)] : (part.match(PIECES) ?? []).flatMap(piece => this.merge(piece)));
  }

  // The ids of one piece: again and again the pair that was learned first becomes one, wherever it stands.
  merge(piece) {
    let parts = Array.from(new TextEncoder().encode(piece), byte => this.letters[byte]);
    for (;;) {
      let first = Infinity;
      for (let i = 0; i + 1 < parts.length; i++)
        first = Math.min(first, this.ranks.get(`${parts[i]} ${parts[i + 1]}`) ?? Infinity);
      if (first === Infinity) return parts.map(part => this.ids.get(part));
      const merged = [];
      for (let i = 0; i < parts.length; i++) {
        const pair = this.ranks.get(`${parts[i]} ${parts[i + 1]}`) === first;
        merged.push(pair ? parts[i] + parts[++i] : parts[i]);
      }
      parts = merged;
    }
  }

  // The text of ids. Bytes that are no whole character yet wait in a decoder that is kept.
  decode(ids, decoder = new TextDecoder(), stream = false) {
    return ids.map(id => decoder.decode(this.bytes[id], { stream: true })).join("") + (stream ? "" : decoder.decode());
  }
}
