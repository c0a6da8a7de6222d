// One message as it is shown: a question, an answer, or what a tool gave back.

import { addNode, showBranch, versions } from "./conversation.js";
import { copyFrom, h, icon, iconButton, put } from "./dom.js";
import { showText } from "./dialogs.js";
import { number, seconds, t } from "./i18n.js";
import { progress } from "./models.js";
import { Prose } from "./render.js";
import { state, tell, touch } from "./state.js";
import { answer, ask, isRunning } from "./talk.js";
import { Thinking } from "./thinking.js";
import { Call } from "./call.js";

// A view of one node. `update` shows what it is now; `element` stays the same.
export function viewOf(conversation, node) {
  if (node.role === "user") return new Question(conversation, node);
  if (node.role === "tool") return new ToolResult(node);
  return new AnswerView(conversation, node);
}

class Question {
  constructor(conversation, node) {
    this.conversation = conversation;
    this.node = node;
    this.element = h("article.question", { "aria-label": t("you") });
    this.update();
  }

  update() {
    const { node, conversation } = this;
    const files = (node.files || []).map((file) =>
      h("button.chip", { type: "button", onclick: () => showText(file.name, file.text) }, icon("file"), file.name),
    );
    const copy = iconButton("copy", t("copy"), () => copyFrom(copy, node.content, t("copied")));
    put(
      this.element,
      files.length ? h("div.chips", null, files) : null,
      node.content ? h("div.bubble", { dir: "auto" }, node.content) : null,
      h("div.actions", null, switcher(conversation, node), iconButton("edit", t("edit"), () => this.edit(), { "data-act": "edit" }), copy),
    );
  }

  // The message becomes a field; sending it grows a branch beside the old one.
  edit() {
    const { node, conversation } = this;
    const area = h("textarea", { "aria-label": t("edit"), rows: Math.min(12, node.content.split("\n").length + 1) });
    area.value = node.content;
    const leave = () => {
      this.update();
      this.element.querySelector("[data-act=edit]").focus();
    };
    const done = () => {
      if (!area.value.trim() && !node.files?.length) return;
      ask(conversation, node.parent, area.value.trim(), node.files);
    };
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") leave();
      else if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      else done();
      event.preventDefault();
      event.stopPropagation();
    });
    const cancel = h("button.plain", { type: "button", onclick: leave }, t("cancel"));
    const go = h("button.primary", { type: "button", onclick: done }, t("saveSend"));
    put(this.element, h("div.editor", null, area, h("div.row", null, cancel, go)));
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }
}

class ToolResult {
  constructor(node) {
    this.element = h(
      "article.tool-result",
      { "aria-label": t("toolResult", { name: node.name }) },
      h("div.tool-title", null, icon("check"), t("toolResult", { name: node.name })),
      h("pre", { tabindex: 0 }, node.content),
    );
  }

  update() {}
}

class AnswerView {
  constructor(conversation, node) {
    this.conversation = conversation;
    this.node = node;
    this.thinking = new Thinking(node);
    this.prose = new Prose();
    this.calls = h("div.calls");
    this.status = h("div.status");
    this.notice = h("div");
    this.foot = h("div.actions");
    this.element = h(
      "article.answer",
      { "aria-label": t("model") },
      ...[this.thinking.element, this.prose.element, this.calls, this.status, this.notice, this.foot],
    );
    this.update();
  }

  update() {
    const { node } = this;
    const runs = isRunning(node);
    this.element.classList.toggle("running", runs);
    this.element.classList.toggle("writing", runs && node.state === "writing");
    this.element.setAttribute("aria-busy", String(runs));
    this.thinking.update();
    this.prose.show(node.content);
    this.showCalls();
    this.status.hidden = !runs || !["waiting", "loading", "prompt"].includes(node.state);
    if (!this.status.hidden) put(this.status, h("span.dots", { "aria-hidden": "true" }, h("i"), h("i"), h("i")), h("span.grow", null, statusOf(node)), readingBar(node));
    if (!runs) put(this.notice, noticeOf(this.conversation, node));
    else this.notice.replaceChildren();
    this.foot.hidden = runs;
    if (!runs) this.showFoot();
  }

  showCalls() {
    const { node, conversation } = this;
    const results = new Map(
      Object.values(conversation.nodes)
        .filter((other) => other.role === "tool")
        .map((other) => [other.callId, other]),
    );
    const isOver = !isRunning(node);
    const key = JSON.stringify([node.calls, isOver, [...results.keys()]]);
    if (key === this.shownCalls) return;
    this.shownCalls = key;
    const open = (node.calls || []).filter((call) => !results.has(call.id));
    const made = (node.calls || []).map((call) => {
      const wants = isOver && open.includes(call) && conversation.leaf !== null;
      return new Call(call, wants ? (text) => this.give(call, text) : null).element;
    });
    put(this.calls, made);
  }

  // A result of a call; when all are there, the model goes on.
  give(call, text) {
    const { node, conversation } = this;
    const path = [];
    for (let at = conversation.nodes[conversation.leaf]; at && at !== node; at = conversation.nodes[at.parent]) path.push(at);
    const isBehind = conversation.leaf === node.id || path.every((one) => one.role === "tool");
    const parent = isBehind ? conversation.leaf : node.id;
    const last = addNode(conversation, parent, { role: "tool", callId: call.id, name: call.name, content: text });
    touch(conversation, { now: true });
    const given = new Set(path.map((one) => one.callId));
    given.add(call.id);
    if (node.calls.every((one) => given.has(one.id))) answer(conversation, last.id);
    else tell("chat");
  }

  showFoot() {
    const { node, conversation } = this;
    const copy = iconButton("copy", t("copy"), () => copyFrom(copy, node.content, t("copied")));
    put(
      this.foot,
      switcher(conversation, node),
      node.content ? copy : null,
      iconButton("again", t("regenerate"), () => answer(conversation, node.parent), { "data-act": "again" }),
      iconButton("look", t("inspect"), () => inspect(node), { "data-act": "inspect" }),
      h("span.meta", null, metaOf(node)),
    );
  }
}

function inspect(node) {
  state.inspected = node.id;
  tell("shown", "inspector");
}

// ‹ 2 of 3 › where a message has several versions.
function switcher(conversation, node) {
  const all = versions(conversation, node);
  if (all.length < 2) return null;
  const i = all.indexOf(node);
  const go = (step) => () => {
    showBranch(conversation, all[i + step]);
    touch(conversation, { rises: false });
    tell("chat");
  };
  return h(
    "span.versions",
    { role: "group" },
    iconButton("left", t("previous"), go(-1), { disabled: i === 0 }),
    h("span", null, t("versionOf", { i: i + 1, n: all.length })),
    iconButton("right", t("next"), go(1), { disabled: i === all.length - 1 }),
  );
}

function statusOf(node) {
  if (node.state === "loading" || (node.state === "waiting" && progress())) {
    const found = progress();
    const share = found?.total ? ` ${number((100 * found.done) / found.total)} %` : "";
    return t("waitingForModel") + share;
  }
  if (node.state === "waiting") return t("waiting");
  if (!isReading(node)) return t("readingPrompt");
  const { processed, total } = node.progress;
  const left = secondsLeft(node.progress);
  const text = t("readingTokens", { done: processed, all: total });
  return left >= 2 ? text + t("timeLeft", { time: seconds(Math.round(left)) }) : text;
}

const isReading = (node) => node.state === "prompt" && node.progress?.processed < node.progress?.total;

// Of a prompt that is being read, at the speed so far; what came from the cache took no time.
export function secondsLeft({ total, cache, processed, time_ms: spent }) {
  return processed > cache ? ((total - processed) * spent) / (processed - cache) / 1000 : 0;
}

function readingBar(node) {
  if (!isReading(node)) return null;
  const { processed, total } = node.progress;
  const bar = h("div.progress", { role: "progressbar", "aria-valuenow": processed, "aria-valuemin": 0, "aria-valuemax": total, "aria-label": t("readingPrompt") }, h("i"));
  bar.firstChild.style.width = `${(100 * processed) / total}%`;
  return bar;
}

function noticeOf(conversation, node) {
  const again = (label, options) =>
    h("button.plain", { type: "button", onclick: () => answer(conversation, node.parent, options) }, t(label));
  if (node.error) {
    const text = node.error.status === 0 && !node.error.message ? t("unreachable") : node.error.message;
    return h("div.notice.bad", { role: "alert" }, h("strong", null, t("failed")), " ", text, again("tryAgain"));
  }
  if (node.onlyThought) return h("div.notice", null, t("onlyThought"), again("answerDirectly", { thinking: "off" }));
  if (node.stopped) return h("p.note", null, t("wasStopped"));
  if (node.finish === "length") return h("p.note", null, t("wasCut"));
  return null;
}

function metaOf(node) {
  const parts = [];
  const { timings, usage } = node;
  if (timings?.predicted_per_second) parts.push(t("speed", { n: number(timings.predicted_per_second, 1) }));
  if (usage) parts.push(t("tokensOf", { n: usage.completion_tokens }));
  if (node.firstMs !== undefined) parts.push(t("firstToken", { time: seconds(node.firstMs / 1000) }));
  return parts.join(" · ");
}
