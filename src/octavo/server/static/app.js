// The page, put together: the list at the left, the conversation, the panel at the right.

import { onKeyWanted, setKey } from "./api.js";
import { ChatView } from "./chat_view.js";
import { Composer } from "./composer.js";
import { askForKey, toast } from "./dialogs.js";
import { h, icon, iconButton, put } from "./dom.js";
import { LANGUAGES, language, setLanguage, t } from "./i18n.js";
import { ModelMenu } from "./model_menu.js";
import { refresh } from "./models.js";
import { Panel } from "./panel.js";
import { recall, remember } from "./remember.js";
import { openSettings } from "./settings_dialog.js";
import { Sidebar } from "./sidebar.js";
import { flushAll, forgetHearers, on, openConversation, readConversations, state } from "./state.js";
import { runningIn, settle, stop } from "./talk.js";
import { applyTheme, isDark, setTheme } from "./theme.js";

let parts = null;
const isNarrow = () => window.matchMedia("(max-width: 800px)").matches;

function build() {
  forgetHearers();
  setLanguage(language());
  const panel = new Panel();
  let composer = null;
  const chat = new ChatView((text, wantsFile) => composer.suggest(text, wantsFile));
  composer = new Composer({ editLast: () => chat.editLast() });
  const sidebar = new Sidebar({ settings: () => openSettings(chooseLanguage), hide: () => showList(false) });
  const status = h("div.hidden", { id: "status", role: "status", "aria-live": "polite" });
  on("ended", (node) => {
    status.textContent = t(node.stopped ? "stopped" : node.error ? "failed" : "answered");
  });
  const main = h("main", null, bar(panel), chat.element, composer.element, h("div.drop", { "aria-hidden": "true" }, t("dropHere")));
  put(
    document.getElementById("app"),
    h("a.skip", { href: "#message" }, t("skip")),
    sidebar.element,
    h("div.veil", { onclick: () => showList(false) }),
    main,
    panel.element,
    status,
    h("div", { id: "toasts" }),
  );
  parts = { panel, composer, chat };
  for (const name of ["chat", "list"]) on(name, showTitle);
  showTitle();
  showList(recall("list") ?? !isNarrow());
  composer.fit();
  chat.end();
}

function showTitle() {
  document.title = state.current.title ? `${state.current.title} · Octavo` : "Octavo";
}

function bar(panel) {
  const view = (drawing, name) => iconButton(drawing, t(name), () => panel.turn(name), { "data-panel": name, "aria-pressed": "false" });
  const other = language() === "zh" ? "en" : "zh";
  const words = iconButton("globe", `${t("language")}: ${LANGUAGES[other]}`, () => chooseLanguage(other), { "data-act": "language" });
  const lamp = iconButton(isDark() ? "sun" : "moon", t("theme"), () => {
    setTheme(isDark() ? "light" : "dark");
    put(lamp, icon(isDark() ? "sun" : "moon"));
  }, { "data-act": "theme" });
  return h(
    "header.bar",
    null,
    iconButton("menu", t("showList"), () => showList(true), { class: "icon-button show-list", "aria-controls": "sidebar" }),
    iconButton("plus", t("newChat"), () => openConversation(null), { class: "icon-button new-narrow" }),
    new ModelMenu().element,
    h("span.grow"),
    words,
    lamp,
    view("memory", "memory"),
    view("look", "inspector"),
  );
}

function showList(isShown) {
  document.body.classList.toggle("with-list", isShown);
  if (!isNarrow()) remember("list", isShown);
}

function chooseLanguage(code) {
  for (const dialog of document.querySelectorAll("dialog")) dialog.close();
  setLanguage(code);
  build();
}

function keys(event) {
  if (document.querySelector("dialog[open]") || event.isComposing) return;
  const hasControl = event.ctrlKey || event.metaKey;
  if (hasControl && event.key.toLowerCase() === "k") {
    event.preventDefault();
    openConversation(null);
    document.getElementById("message").focus();
  } else if (hasControl && event.key.toLowerCase() === "b") {
    event.preventDefault();
    showList(!document.body.classList.contains("with-list"));
  } else if (event.key === "Escape") escape();
}

// One thing at a time: a menu, the running answer, the panel, the list on a narrow screen.
function escape() {
  const menu = document.querySelector("details.menu[open]");
  if (menu) {
    menu.removeAttribute("open");
    menu.querySelector("summary").focus();
  } else if (runningIn(state.current)) stop(state.current);
  else if (parts.panel.open) parts.panel.show(null);
  else if (isNarrow()) showList(false);
}

function drops() {
  let depth = 0;
  const isOver = (event) => event.dataTransfer?.types.includes("Files");
  const mark = () => document.body.classList.toggle("dropping", depth > 0);
  document.addEventListener("dragenter", (event) => {
    if (isOver(event)) depth += 1;
    mark();
  });
  document.addEventListener("dragleave", (event) => {
    if (isOver(event)) depth -= 1;
    mark();
  });
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    depth = 0;
    mark();
    if (event.dataTransfer.files.length) parts.composer.add(event.dataTransfer.files);
  });
}

async function start() {
  applyTheme();
  setLanguage(language());
  onKeyWanted((wasRefused) => askForKey(wasRefused, setKey));
  await readConversations(() => setTimeout(() => toast(t("notKept"))));
  for (const conversation of state.conversations) settle(conversation);
  build();
  document.addEventListener("keydown", keys);
  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.removeAttribute("open");
  });
  window.addEventListener("pagehide", flushAll);
  window.addEventListener("resize", () => parts.composer.fit());
  drops();
  document.getElementById("message").focus();
  await refresh();
}

start();
