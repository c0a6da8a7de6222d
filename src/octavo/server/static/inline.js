// The inside of a paragraph -> nodes. Text in, plain objects out; linear in the text.
//
//   {kind: "text" | "code" | "math", text}   {kind: "break"}
//   {kind: "em" | "strong" | "del", nodes}   {kind: "link", url, nodes}   {kind: "image", url, text}

const SPECIAL = /[\\`*_~[\]<&\n$]|!\[|https?:\/\//g;
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const WORD = /[\p{L}\p{N}]/u;
const TARGET = /^\(\s*(?:<([^<>\n]*)>|([^\s()]*(?:\([^\s()]*\)[^\s()]*)*))(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/;
const LONGEST_TARGET = 4096;
const AUTOLINK = /^<(https?:\/\/[^\s<>]{1,2000})>/;
const BREAK = /^<br\s*\/?>/i;
const ENTITY = /^&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|(amp|lt|gt|quot|apos|nbsp|hellip|mdash|ndash));/;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", hellip: "…", mdash: "—", ndash: "–" };
const BARE = /^https?:\/\/[^\s<>"'`，。；：！？、）】」』》]+/;
const INLINE_MATH = /^\$(?=\S)[^$\n]{0,500}?[^\s$\\]\$(?!\d)/;
const DEEPEST = 20;

export function parseInline(text) {
  return new Scan(text).run();
}

class Scan {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.nodes = []; // marks are among them until they are resolved
    this.brackets = []; // places of open ones in nodes
    this.runs = null; // of backticks: length -> places, the last one first
  }

  run() {
    const { text } = this;
    while (this.at < text.length) {
      SPECIAL.lastIndex = this.at;
      const found = SPECIAL.exec(text);
      const next = found ? found.index : text.length;
      if (next > this.at) this.add(text.slice(this.at, next));
      this.at = next;
      if (found) this.special(found[0]);
    }
    return resolve(this.nodes);
  }

  add(text) {
    this.nodes.push({ kind: "text", text });
  }

  // Takes a text as it is.
  plain(text) {
    this.add(text);
    this.at += text.length;
  }

  take(node, length) {
    this.nodes.push(node);
    this.at += length;
  }

  special(mark) {
    if (mark === "\\") this.escape();
    else if (mark === "`") this.code();
    else if (mark === "\n") this.take({ kind: "break" }, 1);
    else if (mark === "[" || mark === "![") this.open(mark);
    else if (mark === "]") this.close();
    else if (mark === "<") this.angle();
    else if (mark === "&") this.entity();
    else if (mark === "$") this.math();
    else if (mark.startsWith("http")) this.bare();
    else this.mark(mark);
  }

  escape() {
    const next = this.text[this.at + 1];
    if (next === "\n") this.take({ kind: "break" }, 2);
    else if (next === "(" || next === "[") this.until(next === "(" ? "\\)" : "\\]", next);
    else if (next && PUNCTUATION.test(next)) this.take({ kind: "text", text: next }, 2);
    else this.plain("\\");
  }

  // Formulas stay as they are written.
  until(end, bracket) {
    const window = this.text.slice(this.at + 2, this.at + 1002);
    const found = window.indexOf(end);
    if (found < 0) this.take({ kind: "text", text: bracket }, 2);
    else this.take({ kind: "math", text: window.slice(0, found).trim() }, found + 4);
  }

  math() {
    const found = INLINE_MATH.exec(this.text.slice(this.at, this.at + 600));
    // Two prices in a sentence are no formula: it needs a sign of one.
    if (found && /[\\^_{}=]/.test(found[0])) this.take({ kind: "math", text: found[0].slice(1, -1) }, found[0].length);
    else this.plain("$");
  }

  code() {
    const { text } = this;
    const length = runAt(text, this.at);
    this.runs ||= runsOf(text);
    const places = this.runs.get(length);
    while (places.length && places[places.length - 1] <= this.at) places.pop();
    const end = places[places.length - 1];
    if (end === undefined) return this.plain(text.slice(this.at, this.at + length));
    let inner = text.slice(this.at + length, end).replace(/\n/g, " ");
    if (inner.startsWith(" ") && inner.endsWith(" ") && inner.trim()) inner = inner.slice(1, -1);
    return this.take({ kind: "code", text: inner }, end + length - this.at);
  }

  open(mark) {
    this.brackets.push(this.nodes.length);
    this.take({ kind: "text", text: mark, isImage: mark === "![" }, mark.length);
  }

  close() {
    const start = this.brackets.pop();
    const window = this.text.slice(this.at + 1, this.at + 1 + LONGEST_TARGET);
    const found = start === undefined ? null : TARGET.exec(window);
    if (!found) return this.plain("]");
    const url = found[1] ?? found[2];
    const { isImage } = this.nodes[start];
    const inner = resolve(this.nodes.splice(start).slice(1));
    if (!isImage) this.brackets = []; // a link holds no link
    const node = isImage ? { kind: "image", url, text: plainText(inner) } : { kind: "link", url, nodes: inner };
    return this.take(node, 1 + found[0].length);
  }

  angle() {
    const window = this.text.slice(this.at, this.at + 2100);
    const link = AUTOLINK.exec(window);
    const line = BREAK.exec(window);
    if (link) this.take({ kind: "link", url: link[1], nodes: [{ kind: "text", text: link[1] }] }, link[0].length);
    else if (line) this.take({ kind: "break" }, line[0].length);
    else this.plain("<");
  }

  entity() {
    const found = ENTITY.exec(this.text.slice(this.at, this.at + 12));
    if (!found) return this.plain("&");
    const point = found[1] ? parseInt(found[1], 10) : parseInt(found[2], 16);
    const isPoint = point > 0 && point <= 0x10ffff;
    const text = found[3] ? ENTITIES[found[3]] : isPoint ? String.fromCodePoint(point) : "\ufffd";
    return this.take({ kind: "text", text }, found[0].length);
  }

  bare() {
    const before = this.text[this.at - 1];
    let url = BARE.exec(this.text.slice(this.at, this.at + 2000))?.[0] || "";
    url = url.replace(/[.,;:!?*_~]{1,20}$/, "");
    if (url.endsWith(")") && !url.includes("(")) url = url.slice(0, -1);
    if (url.length < 9 || (before && WORD.test(before)) || this.brackets.length) return this.plain(this.text[this.at]);
    return this.take({ kind: "link", url, nodes: [{ kind: "text", text: url }] }, url.length);
  }

  mark(sign) {
    let length = 1;
    while (this.text[this.at + length] === sign) length += 1;
    const before = this.text[this.at - 1] || " ";
    const after = this.text[this.at + length] || " ";
    let opens = /\S/.test(after);
    let closes = /\S/.test(before);
    // Underscores in names are no marks; asterisks are, so that they work without spaces around.
    if (sign === "_") [opens, closes] = [opens && !WORD.test(before), closes && !WORD.test(after)];
    if (sign === "~" && length !== 2) opens = closes = false;
    this.take({ kind: "mark", sign, length, opens, closes }, length);
  }
}

function runAt(text, at) {
  let end = at;
  while (text[end] === "`") end += 1;
  return end - at;
}

function runsOf(text) {
  const runs = new Map();
  for (const found of text.matchAll(/`+/g)) {
    const { length } = found[0];
    if (!runs.has(length)) runs.set(length, []);
    runs.get(length).push(found.index);
  }
  for (const places of runs.values()) places.reverse();
  return runs;
}

// Pairs the marks among the nodes; those without a partner are text.
function resolve(nodes) {
  const out = [];
  const open = { "*": [], _: [], "~": [] }; // places of opening marks in out
  for (const node of nodes) {
    if (node.kind !== "mark") {
      out.push(node);
      continue;
    }
    while (node.closes && node.length && open[node.sign].length) pair(out, open, node);
    if (!node.length) continue;
    if (node.opens) open[node.sign].push(out.length);
    out.push(node);
  }
  return out.map((node) => (node.kind === "mark" ? asText(node) : node));
}

const asText = (mark) => ({ kind: "text", text: mark.sign.repeat(mark.length) });

function pair(out, open, closing) {
  const place = open[closing.sign].pop();
  const opening = out[place];
  const used = Math.min(2, opening.length, closing.length);
  const inner = out.splice(place + 1).map((node) => (node.kind === "mark" ? asText(node) : node));
  for (const places of Object.values(open)) while (places.length && places[places.length - 1] > place) places.pop();
  const depth = inner.reduce((most, node) => Math.max(most, (node.depth || 0) + 1), 1);
  if (depth > DEEPEST) {
    for (const node of inner) out.push(node);
    for (const places of Object.values(open)) places.length = 0; // all that is open is text
    return;
  }
  opening.length -= used;
  closing.length -= used;
  const kind = closing.sign === "~" ? "del" : used === 2 ? "strong" : "em";
  if (opening.length) open[closing.sign].push(place);
  else out.pop();
  out.push({ kind, nodes: inner, depth });
}

export function plainText(nodes) {
  return nodes.map((node) => node.text ?? (node.nodes ? plainText(node.nodes) : " ")).join("");
}
