// What was sent for an answer, and what it took: for people who build on the same server.

import { copyFrom, h, icon, put } from "./dom.js";
import { number, seconds, t } from "./i18n.js";
import { codeBlock } from "./render.js";
import { on, state } from "./state.js";
import { requestOf } from "./talk.js";
import { hasKey } from "./api.js";

export class Inspector {
  constructor() {
    this.element = h("div.panel-body");
    for (const name of ["chat", "shown", "ended"]) on(name, () => this.show());
  }

  show() {
    if (!this.element.isConnected) return;
    const node = nodeShown();
    put(this.element, node ? sheet(node) : [h("p.soft", null, t("noRequest"))]);
  }
}

function nodeShown() {
  const { current, inspected } = state;
  if (inspected && current.nodes[inspected]) return current.nodes[inspected];
  for (let node = current.nodes[current.leaf]; node; node = current.nodes[node.parent]) if (node.role === "assistant") return node;
  return null;
}

function sheet(node) {
  const request = requestOf(state.current, node);
  const text = JSON.stringify(request, null, 2);
  return [
    h("p.soft", null, t("inspectorMore")),
    node.usage ? tokens(node) : null,
    node.timings ? times(node) : null,
    facts(node),
    h("h3", null, t("jsonSent")),
    h(
      "div.row",
      null,
      copyButton("copyCurl", () => curlOf(request)),
      copyButton("copyJson", () => text),
    ),
    codeBlock({ language: "json", text: JSON.stringify(request, null, 2) }),
  ];
}

function copyButton(key, make) {
  const button = h("button.plain", { type: "button", "data-act": key, onclick: () => copyFrom(button, make(), t("copied")) }, icon("copy"), t(key));
  return button;
}

function tokens({ usage }) {
  const cached = usage.prompt_tokens_details?.cached_tokens || 0;
  const thought = usage.completion_tokens_details?.reasoning_tokens || 0;
  return [
    split("prompt", usage.prompt_tokens, [
      ["cached", cached, "quiet"],
      ["computed", usage.prompt_tokens - cached, "strong"],
    ]),
    split("output", usage.completion_tokens, [
      ["thoughtTokens", thought, "quiet"],
      ["answerTokens", usage.completion_tokens - thought, "strong"],
    ]),
  ];
}

// A bar of parts of a whole, with their numbers below.
function split(key, all, parts, write = (n) => number(n)) {
  const bar = h("div.split", { "aria-hidden": "true" });
  for (const [, n, kind] of parts) {
    const piece = h(`i.${kind}`);
    piece.style.flexGrow = String(n);
    if (n > 0) bar.append(piece);
  }
  const legend = parts.map(([name, n, kind]) => h("span.legend", null, h(`i.${kind}`), t(name), " ", h("b", null, write(n))));
  return h("section.split-row", null, h("h3", null, t(key), h("b", null, write(all))), bar, h("div.legends", null, legend));
}

function times({ timings }) {
  const prompt = timings.prompt_ms || 0;
  const answer = timings.predicted_ms || 0;
  const parts = [
    ["promptTime", prompt, "quiet"],
    ["answerTime", answer, "strong"],
  ];
  return split("time", prompt + answer, parts, (ms) => seconds(ms / 1000));
}

function facts(node) {
  const { timings = {} } = node;
  const rows = [
    ["model", node.model],
    ["promptSpeed", timings.prompt_per_second && t("speed", { n: number(timings.prompt_per_second, 1) })],
    ["answerSpeed", timings.predicted_per_second && t("speed", { n: number(timings.predicted_per_second, 1) })],
    ["untilFirst", node.firstMs !== undefined && seconds(node.firstMs / 1000)],
    ["total", node.totalMs !== undefined && seconds(node.totalMs / 1000)],
    ["drafted", timings.draft_n > 0 && `${number(timings.draft_n_accepted)} / ${number(timings.draft_n)}`],
    ["finish", node.error ? node.error.message || t("unreachable") : node.stopped ? t("stopped") : node.finish],
    ["requestId", node.requestId],
  ];
  const shown = rows.filter(([, value]) => value);
  return h("dl.facts", null, shown.map(([key, value]) => [h("dt", null, t(key)), h("dd", null, value)]));
}

// For a shell. The key is not written out: it stands in a variable.
export function curlOf(request) {
  const lines = [`curl -N ${location.origin}/v1/chat/completions`, `-H "Content-Type: application/json"`];
  if (hasKey()) lines.push(`-H "Authorization: Bearer $OCTAVO_API_KEY"`);
  lines.push(`-d '${JSON.stringify(request).replace(/'/g, "'\\''")}'`);
  return lines.join(" \\\n  ");
}
