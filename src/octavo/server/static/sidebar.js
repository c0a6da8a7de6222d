// The list of conversations.

import { asMarkdown } from "./conversation.js";
import { toast } from "./dialogs.js";
import { download, h, icon, iconButton, put } from "./dom.js";
import { shortcut, t } from "./i18n.js";
import { deleteConversation, on, openConversation, state, touch } from "./state.js";
import { runningIn, stop } from "./talk.js";

const DAY_MS = 24 * 3600 * 1000;

export class Sidebar {
  constructor({ settings, hide }) {
    this.hide = hide;
    this.filter = "";
    this.search = h("input.search", { type: "search", placeholder: t("search"), "aria-label": t("search") });
    this.search.addEventListener("input", () => {
      this.filter = this.search.value.trim().toLowerCase();
      this.show();
    });
    this.list = h("div.list");
    this.element = h(
      "nav.sidebar",
      { id: "sidebar", "aria-label": t("conversations") },
      h("div.brand", null, h("span.wordmark", null, "Octavo"), iconButton("menu", t("hideList"), hide)),
      h("button.new", { type: "button", onclick: () => this.open(null), title: shortcut("K") }, icon("plus"), h("span", null, t("newChat")), h("kbd", null, shortcut("K"))),
      this.search,
      this.list,
      h("div.side-foot", null, h("button.foot-button", { type: "button", onclick: settings }, icon("settings"), t("settings"))),
    );
    on("list", () => this.show());
    on("ended", () => this.show());
    this.show();
  }

  open(conversation) {
    openConversation(conversation);
    if (window.matchMedia("(max-width: 800px)").matches) this.hide();
    document.getElementById("message")?.focus();
  }

  show() {
    const wanted = state.conversations.filter((one) => matches(one, this.filter));
    this.search.hidden = state.conversations.length < 6 && !this.filter;
    const groups = new Map();
    for (const one of wanted) {
      const key = ageOf(one.updated);
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(one);
    }
    const made = [...groups].map(([key, group]) => [h("h2", null, t(key)), h("ul", null, group.map((one) => this.row(one)))]);
    put(this.list, made.length ? made : this.filter ? h("p.soft", null, t("nothingFound")) : null);
  }

  row(one) {
    const title = one.title || t("untitled");
    const isCurrent = one === state.current;
    const button = h("button.row-open", { type: "button", "aria-current": isCurrent && "page", onclick: () => this.open(one), title }, h("span", null, title));
    if (runningIn(one)) button.append(h("span.busy", { "aria-label": t("waiting") }));
    const menu = h("details.menu", null, h("summary", { "aria-label": t("actionsOf", { title }), role: "button" }, icon("more")));
    const act = (drawing, key, todo) =>
      h("button", { type: "button", onclick: () => (menu.removeAttribute("open"), todo()) }, icon(drawing), t(key));
    menu.append(
      h(
        "div.menu-list",
        null,
        act("edit", "rename", () => this.rename(one, item)),
        act("save", "exportChat", () => download(`${fileName(title)}.md`, "text/markdown", asMarkdown(one, wordsOf()))),
        act("trash", "deleteChat", () => this.remove(one, title)),
      ),
    );
    const item = h(isCurrent ? "li.current" : "li", null, button, menu);
    return item;
  }

  rename(one, item) {
    const input = h("input.rename", { value: one.title, "aria-label": t("rename") });
    let isDone = false;
    const done = (isKept) => {
      if (isDone) return;
      isDone = true;
      if (isKept && input.value.trim()) {
        one.title = input.value.trim();
        touch(one, { now: true, rises: false });
      }
      this.show();
    };
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") event.stopPropagation();
      if (event.key === "Enter" || event.key === "Escape") done(event.key === "Enter");
    });
    input.addEventListener("blur", () => done(true));
    put(item, input);
    input.focus();
    input.select();
  }

  async remove(one, title) {
    stop(one);
    await deleteConversation(one);
    toast(t("deleted", { title }), t("undo"), () => {
      touch(one, { now: true, rises: false });
      this.show();
    });
  }
}

function matches(one, filter) {
  if (!filter || one.title.toLowerCase().includes(filter)) return true;
  return Object.values(one.nodes).some((node) => node.content.toLowerCase().includes(filter));
}

function ageOf(time) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  if (time >= midnight) return "today";
  if (time >= midnight - DAY_MS) return "yesterday";
  return time >= midnight - 7 * DAY_MS ? "lastWeek" : "older";
}

const wordsOf = () => ({ you: t("you"), model: t("model"), untitled: t("untitled") });

const fileName = (title) => title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "octavo";
