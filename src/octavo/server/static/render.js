// Blocks -> elements. Every text of the model arrives here, and leaves as text nodes.

import { copyFrom, h, icon } from "./dom.js";
import { highlight } from "./highlight.js";
import { t } from "./i18n.js";
import { parseInline } from "./inline.js";
import { parse } from "./markdown.js";

const OPEN_PROTOCOLS = ["http:", "https:", "mailto:"];

// A place for Markdown that grows. Blocks whose source stayed the same are left alone.
export class Prose {
  constructor() {
    this.element = h("div.prose");
    this.sources = [];
  }

  show(text) {
    const blocks = parse(text);
    const { children } = this.element;
    blocks.forEach((block, i) => {
      if (this.sources[i] === block.source) return;
      const made = elementOf(block);
      if (i < children.length) children[i].replaceWith(made);
      else this.element.append(made);
    });
    while (children.length > blocks.length) this.element.lastChild.remove();
    this.sources = blocks.map((block) => block.source);
  }
}

export function elementOf(block) {
  return MAKERS[block.kind](block);
}

const MAKERS = {
  heading: ({ level, text }) => h(`h${Math.min(6, level + 1)}`, null, inline(text)),
  paragraph: ({ text }) => h("p", null, inline(text)),
  rule: () => h("hr"),
  math: ({ text }) => h("div.math", null, text),
  quote: ({ blocks }) => h("blockquote", null, blocks.map(elementOf)),
  code: codeBlock,
  list: ({ start, items }) =>
    h(start === null ? "ul" : "ol", { start: start > 1 && start }, items.map(listItem)),
  table,
};

function listItem({ task, blocks }) {
  const box = task === null ? null : h("input", { type: "checkbox", disabled: true, checked: task, "aria-label": task ? "✓" : "–" });
  // A single paragraph stands in the item itself: no room around it.
  const isTight = blocks.filter((block) => block.kind === "paragraph").length === 1 && blocks[0].kind === "paragraph";
  const content = isTight ? [inline(blocks[0].text), blocks.slice(1).map(elementOf)] : blocks.map(elementOf);
  return h(box ? "li.task" : "li", null, box, box ? " " : null, content);
}

function table({ head, align, rows, left }) {
  const cell = (tag, text, i) => h(`${tag}.align-${align[i] || "left"}`, null, inline(text || ""));
  const body = rows.map((row) => h("tr", null, head.map((_, i) => cell("td", row[i], i))));
  const element = h(
    "table",
    null,
    h("thead", null, h("tr", null, head.map((text, i) => cell("th", text, i)))),
    h("tbody", null, body),
  );
  const note = left > 0 ? h("p.note", null, t("rowsLeft", { n: left })) : null;
  return h("div.table", { tabindex: 0, role: "region" }, element, note);
}

export function codeBlock({ language, text }) {
  const label = h("span.code-label", null, t("copy"));
  const copy = h("button.code-copy", { type: "button", "aria-label": t("copyCode") }, icon("copy"), label);
  copy.addEventListener("click", () => copyFrom(copy, text, t("copied")));
  const code = h("code", { translate: "no" }, highlight(text, language));
  return h(
    "figure.code",
    null,
    h("figcaption", null, h("span", null, language || t("code")), copy),
    h("pre", { tabindex: 0, dir: "ltr" }, code),
  );
}

function inline(text) {
  return nodesOf(parseInline(text));
}

function nodesOf(nodes) {
  return nodes.map((node) => {
    if (node.kind === "text") return node.text;
    if (node.kind === "break") return h("br");
    if (node.kind === "code") return h("code", { translate: "no" }, node.text);
    if (node.kind === "math") return h("span.math", null, node.text);
    if (node.kind === "link") return link(node.url, nodesOf(node.nodes));
    // Pictures are not fetched: an address can carry out what was said.
    if (node.kind === "image") return link(node.url, [`${t("image")}: ${node.text || node.url}`]);
    return h(node.kind, null, nodesOf(node.nodes));
  });
}

// Only addresses that open another page become links; all else stays text.
function link(url, children) {
  let parsed = null;
  try {
    parsed = new URL(url);
  } catch {
    // Not an address by itself: it would lead somewhere on this server.
  }
  if (!parsed || !OPEN_PROTOCOLS.includes(parsed.protocol)) return h("span", null, children);
  const hint = { href: parsed.href, target: "_blank", rel: "noopener noreferrer nofollow", title: parsed.href };
  return h("a", hint, children);
}
