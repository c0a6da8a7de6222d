// Markdown -> blocks: the part of CommonMark and its tables that models write. Text in, plain
// objects out; nothing here can make markup. The time is linear in the text, whatever it holds.
//
//   {kind: "heading", level, text}   {kind: "paragraph", text}   {kind: "rule"}
//   {kind: "code", language, text, isClosed}   {kind: "math", text}
//   {kind: "quote", blocks}   {kind: "list", start (null: bullets), items: [{blocks, task}]}
//   {kind: "table", head: [cell], align: [side], rows: [[cell]], left: rows that were too many}

const DEEPEST = 12;
const MOST_ROWS = 1000;
const MOST_COLUMNS = 40;

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:([ \t]+)(?=\S)|[ \t]*$)/;
const TASK = /^\[([ xX])\][ \t]+/;
const MATH = [
  [/^ {0,3}\$\$/, /\$\$[ \t]*$/],
  [/^ {0,3}\\\[/, /\\\][ \t]*$/],
];

// The blocks of a text. Each has its `source`: equal sources mean equal blocks.
export function parse(text) {
  return read(text.replace(/\r\n?/g, "\n").split("\n"), 0);
}

function read(lines, depth) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const [block, next] = blockAt(lines, at, depth);
    if (depth === 0) block.source = lines.slice(at, next).join("\n");
    blocks.push(block);
    at = next;
  }
  return blocks;
}

function blockAt(lines, at, depth) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return code(lines, at, fence);
  const heading = HEADING.exec(line);
  if (heading) {
    const text = (heading[2] || "").replace(/[ \t]+#+[ \t]*$/, "");
    return [{ kind: "heading", level: heading[1].length, text }, at + 1];
  }
  if (RULE.test(line)) return [{ kind: "rule" }, at + 1];
  for (const [opens, closes] of MATH) if (opens.test(line)) return math(lines, at, opens, closes);
  if (depth < DEEPEST) {
    if (QUOTE.test(line)) return quote(lines, at, depth);
    if (ITEM.test(line)) return list(lines, at, depth);
  }
  if (isTable(lines, at)) return table(lines, at);
  return paragraph(lines, at, depth);
}

function code(lines, at, [, marks, info]) {
  const indent = /^ */.exec(lines[at])[0].length;
  const closes = new RegExp(`^ {0,3}${marks[0]}{${marks.length},}[ \\t]*$`);
  const language = info.trim().split(/\s/)[0];
  const text = [];
  for (let i = at + 1; i < lines.length; i += 1) {
    if (closes.test(lines[i])) return [{ kind: "code", language, text: text.join("\n"), isClosed: true }, i + 1];
    text.push(without(lines[i], indent));
  }
  return [{ kind: "code", language, text: text.join("\n"), isClosed: false }, lines.length];
}

// The line without up to n leading spaces; a tab counts as four.
function without(line, n) {
  let i = 0;
  let width = 0;
  while (width < n && (line[i] === " " || line[i] === "\t")) {
    width += line[i] === "\t" ? 4 : 1;
    i += 1;
  }
  return line.slice(i);
}

const indentOf = (line) => /^[ \t]*/.exec(line)[0].replace(/\t/g, "    ").length;

function math(lines, at, opens, closes) {
  const first = lines[at].replace(opens, "");
  if (closes.test(first)) return [{ kind: "math", text: first.replace(closes, "").trim() }, at + 1];
  const text = [first];
  for (let i = at + 1; i < lines.length; i += 1) {
    if (!lines[i].trim()) break; // it was never closed: the text goes on behind it
    if (closes.test(lines[i])) {
      text.push(lines[i].replace(closes, ""));
      return [{ kind: "math", text: text.join("\n").trim() }, i + 1];
    }
    text.push(lines[i]);
  }
  return [{ kind: "paragraph", text: [lines[at], ...text.slice(1)].join("\n") }, at + text.length];
}

function quote(lines, at, depth) {
  const inner = [];
  let i = at;
  for (; i < lines.length && QUOTE.test(lines[i]); i += 1) inner.push(lines[i].replace(QUOTE, ""));
  return [{ kind: "quote", blocks: read(inner, depth + 1) }, i];
}

const isNumbered = (marker) => /\d/.test(marker);

function list(lines, at, depth) {
  const [, , firstMarker] = ITEM.exec(lines[at]);
  const base = indentOf(lines[at]);
  const items = [];
  let i = at;
  while (i < lines.length) {
    const found = ITEM.exec(lines[i]);
    if (!found || indentOf(lines[i]) > base + 1 || isNumbered(found[2]) !== isNumbered(firstMarker)) break;
    if (RULE.test(lines[i])) break;
    const [inner, next] = item(lines, i, found);
    items.push(itemOf(inner, depth));
    i = next;
    while (i < lines.length && !lines[i].trim()) i += 1; // blank lines between items
  }
  const start = isNumbered(firstMarker) ? parseInt(firstMarker, 10) : null;
  return [{ kind: "list", start, items }, i];
}

// The lines of one item without their indent, and where the next begins.
function item(lines, at, [, spaces, marker, gap]) {
  const width = spaces.length + marker.length + Math.min(gap?.length || 1, 4);
  const least = Math.min(width, spaces.length + 2); // models indent nested items by two, too
  const inner = [lines[at].slice(spaces.length + marker.length).trimStart()];
  let i = at + 1;
  for (; i < lines.length; i += 1) {
    const line = lines[i];
    if (!line.trim()) {
      const follows = lines.slice(i + 1, i + 3).find((other) => other.trim());
      if (follows === undefined || indentOf(follows) < least) break;
      inner.push("");
    } else if (indentOf(line) >= least) inner.push(without(line, width));
    else if (starts(line) || !lines[i - 1].trim()) break;
    else inner.push(line.trimStart()); // a paragraph goes on at the margin
  }
  return [inner, i];
}

function itemOf(inner, depth) {
  const task = TASK.exec(inner[0]);
  if (task) inner[0] = inner[0].slice(task[0].length);
  return { task: task ? task[1] !== " " : null, blocks: read(inner, depth + 1) };
}

function starts(line) {
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line);
}

function isTable(lines, at) {
  if (at + 1 >= lines.length || !lines[at].includes("|") || !lines[at + 1].includes("-")) return false;
  const sides = cells(lines[at + 1]);
  return sides.every((cell) => /^:?-+:?$/.test(cell)) && sides.length === cells(lines[at]).length;
}

// The cells of a row; a bar with a backslash, or in code, is text.
function cells(line) {
  const found = [];
  let text = "";
  let isCode = false;
  const row = line.trim();
  for (let i = row.startsWith("|") ? 1 : 0; i < row.length; i += 1) {
    if (row[i] === "\\" && row[i + 1] === "|") {
      text += "|";
      i += 1;
    } else if (row[i] === "|" && !isCode) {
      found.push(text.trim());
      text = "";
    } else {
      if (row[i] === "`") isCode = !isCode;
      text += row[i];
    }
  }
  if (text.trim() || !row.endsWith("|")) found.push(text.trim());
  return found;
}

function table(lines, at) {
  const head = cells(lines[at]).slice(0, MOST_COLUMNS);
  const align = cells(lines[at + 1]).map((cell) => {
    if (cell.endsWith(":")) return cell.startsWith(":") ? "center" : "right";
    return "left";
  });
  const rows = [];
  let i = at + 2;
  for (; i < lines.length && lines[i].includes("|"); i += 1) {
    if (rows.length < MOST_ROWS) rows.push(cells(lines[i]).slice(0, head.length));
  }
  return [{ kind: "table", head, align, rows, left: i - at - 2 - rows.length }, i];
}

function paragraph(lines, at, depth) {
  let i = at + 1;
  while (i < lines.length && lines[i].trim() && !(interrupts(lines[i]) && depth < DEEPEST) && !isTable(lines, i)) i += 1;
  return [{ kind: "paragraph", text: lines.slice(at, i).map((line) => line.trimStart()).join("\n") }, i];
}

// A number in the middle of a sentence is no list, unless it is 1.
function interrupts(line) {
  const found = ITEM.exec(line);
  if (found) return found[3] !== undefined && (!isNumbered(found[2]) || parseInt(found[2], 10) === 1);
  return starts(line);
}
