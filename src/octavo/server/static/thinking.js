// The thinking of an answer: dimmed, folded away when the answer begins, with a clock and a way out.

import { h, icon } from "./dom.js";
import { seconds, t } from "./i18n.js";
import { Prose } from "./render.js";
import { answerNow } from "./talk.js";

const TICK_MS = 200;

export class Thinking {
  constructor(node) {
    this.node = node;
    this.isOpen = null; // null: by itself; else as the reader wished
    this.prose = new Prose();
    this.label = h("span.thinking-label");
    this.toggle = h("button.thinking-toggle", { type: "button", onclick: () => this.flip() }, icon("think"), this.label, icon("down"));
    this.button = h("button.pill", { type: "button", onclick: () => answerNow(this.node) }, icon("quick"), h("span"));
    this.body = h("div.thinking-body", null, this.prose.element);
    this.element = h("section.thinking", { "aria-label": t("thoughts") }, h("div.thinking-head", null, this.toggle, this.button), this.body);
    this.clock = null;
    this.update();
  }

  flip() {
    this.isOpen = !this.opened();
    this.update();
  }

  get isRunning() {
    return this.node.state === "thinking";
  }

  opened() {
    return this.isOpen ?? this.isRunning;
  }

  update() {
    const { node } = this;
    const isOpen = this.opened();
    this.element.hidden = !node.reasoning;
    this.element.classList.toggle("running", this.isRunning);
    this.element.classList.toggle("open", isOpen);
    this.toggle.setAttribute("aria-expanded", String(isOpen));
    this.body.hidden = !isOpen;
    this.button.hidden = !this.isRunning;
    this.button.disabled = Boolean(node.isEnding);
    this.button.lastChild.textContent = t(node.isEnding ? "endingThinking" : "answerNow");
    this.tell();
    if (isOpen && node.reasoning) {
      this.prose.show(node.reasoning);
      if (this.isRunning) this.body.scrollTop = this.body.scrollHeight;
    }
    if (this.isRunning && !this.clock) this.clock = setInterval(() => this.tick(), TICK_MS);
  }

  tick() {
    if (this.isRunning && this.element.isConnected) {
      this.tell();
      return;
    }
    clearInterval(this.clock);
    this.clock = null;
  }

  tell() {
    const { node } = this;
    const spent = node.thinkMs ?? (node.thinkStart ? Date.now() - node.thinkStart : 0);
    if (this.isRunning) write(this.label, t("thinkingNow"), seconds(Math.floor(spent / 1000)));
    else write(this.label, t("thoughtFor", { time: seconds(spent / 1000) }), "");
  }
}

// Words, and a clock beside them that screen readers need not follow.
function write(label, text, clock) {
  label.replaceChildren(text);
  if (clock) label.append(" ", h("span.clock", { "aria-hidden": "true" }, clock));
}
