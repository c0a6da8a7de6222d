// The panel at the side: the request inspector, or the picture of the memory.

import { h, iconButton, put } from "./dom.js";
import { t } from "./i18n.js";
import { Inspector } from "./inspector.js";
import { Memory } from "./memory.js";
import { on } from "./state.js";

export class Panel {
  constructor() {
    this.inside = { inspector: new Inspector(), memory: new Memory() };
    this.open = null;
    this.element = h("aside.panel", { hidden: true });
    on("shown", (name) => this.show(name));
  }

  // Opens a view, or closes it if it is the one that is open.
  turn(name) {
    this.show(this.open === name ? null : name);
  }

  show(name) {
    const before = this.open;
    this.open = name;
    this.element.hidden = !name;
    document.body.classList.toggle("with-panel", Boolean(name));
    for (const button of document.querySelectorAll("[data-panel]")) {
      button.setAttribute("aria-pressed", String(button.dataset.panel === name));
    }
    if (!name) {
      if (before) document.querySelector(`[data-panel=${before}]`)?.focus();
      return;
    }
    const close = iconButton("close", t("close"), () => this.show(null));
    const inside = this.inside[name];
    this.element.setAttribute("aria-label", t(name));
    put(this.element, h("header", null, h("h2", null, t(name)), close), inside.element);
    inside.show();
    if (before !== name) close.focus();
  }
}
