// The branch of the conversation that is open, and the empty page before the first question.

import { pathTo } from "./conversation.js";
import { h, icon, put } from "./dom.js";
import { t } from "./i18n.js";
import { viewOf } from "./message.js";
import { on, state } from "./state.js";
import { isRunning } from "./talk.js";

const NEAR_PIXELS = 80;
const LEAST_PAUSE_MS = 40;

export class ChatView {
  // `suggest(text, wantsFile)` puts a beginning into the message field.
  constructor(suggest) {
    this.suggest = suggest;
    this.views = new Map(); // id of a node -> its view
    this.shown = null; // the conversation
    this.column = h("div.column", { role: "log", "aria-label": t("conversations"), "aria-live": "off" });
    this.scroller = h("div.scroller", { tabindex: -1 }, this.column);
    this.toEnd = h("button.to-end", { type: "button", "aria-label": t("latest"), title: t("latest"), hidden: true, onclick: () => this.end(true) }, icon("down"));
    this.element = h("div.chat", null, this.scroller, this.toEnd);
    this.isAtEnd = true;
    this.scroller.addEventListener("scroll", () => this.look());
    this.pending = new Set();
    on("chat", () => this.rebuild());
    on("node", (node) => this.plan(node));
    on("server", () => this.planLoading());
    this.rebuild();
  }

  rebuild() {
    const { current } = state;
    const isOther = this.shown !== current;
    if (isOther) this.views.clear();
    this.shown = current;
    const path = pathTo(current, current.leaf);
    if (!path.length) {
      put(this.column, this.welcome());
      this.look();
      return;
    }
    const kept = new Map();
    for (const node of path) {
      const view = this.views.get(node.id) || viewOf(current, node);
      if (this.views.has(node.id)) view.update();
      kept.set(node.id, view);
    }
    this.views = kept;
    put(this.column, [...kept.values()].map((view) => view.element));
    const last = path[path.length - 1];
    if (isOther || isRunning(last)) this.end();
    this.look();
  }

  welcome() {
    const starts = [
      ["edit", "tryWrite"],
      ["think", "tryExplain"],
      ["tool", "tryCode"],
      ["file", "tryFile"],
    ];
    const cards = starts.map(([drawing, key]) =>
      h(
        "button.start",
        { type: "button", onclick: () => this.suggest(t(`${key}Text`), key === "tryFile") },
        icon(drawing),
        h("strong", null, t(key)),
        h("span", null, t(`${key}Text`)),
      ),
    );
    return h("div.welcome", null, h("h1", null, t("hello")), h("p", null, t("helloMore")), h("div.starts", null, cards));
  }

  // Messages that grow are drawn together, a little apart: the longer it takes, the rarer.
  plan(node) {
    this.pending.add(node.id);
    if (this.timer) return;
    const pause = isRunning(node) ? Math.max(LEAST_PAUSE_MS, 4 * (this.cost || 0)) : 0;
    this.timer = setTimeout(() => this.draw(), pause);
  }

  planLoading() {
    for (const view of this.views.values()) if (["loading", "waiting"].includes(view.node?.state)) this.plan(view.node);
  }

  draw() {
    this.timer = null;
    const begin = performance.now();
    for (const id of this.pending) this.views.get(id)?.update();
    this.pending.clear();
    this.cost = performance.now() - begin;
    if (this.isAtEnd) this.end();
    else this.look();
  }

  end(isSmooth = false) {
    this.scroller.scrollTo({ top: this.scroller.scrollHeight, behavior: isSmooth ? "smooth" : "instant" });
    this.isAtEnd = true;
  }

  look() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    this.isAtEnd = scrollHeight - scrollTop - clientHeight < NEAR_PIXELS;
    this.toEnd.hidden = this.isAtEnd;
  }

  // The last question becomes a field again.
  editLast() {
    const last = [...this.views.values()].reverse().find((view) => view.edit);
    last?.edit();
  }
}
