// Where a message is written: the field, its files, and the buttons around it.

import { ApiError } from "./api.js";
import { showText, toast } from "./dialogs.js";
import { h, icon, iconButton, put } from "./dom.js";
import { MOST_BYTES, readFile } from "./files.js";
import { bytes, t } from "./i18n.js";
import { recall, remember } from "./remember.js";
import { changeSettings, on, state } from "./state.js";
import { ask, isRunning, runningIn, stop } from "./talk.js";

const TALLEST_PIXELS = 260;
const THINKING = ["auto", "on", "off"];

export class Composer {
  constructor({ editLast }) {
    this.editLast = editLast;
    this.files = []; // {name, isReading, error, text, pages, isCut, abort}
    this.chips = h("div.chips", { hidden: true });
    this.area = h("textarea", { id: "message", rows: 1, placeholder: t("placeholder"), "aria-label": t("message"), dir: "auto" });
    this.input = h("input", { type: "file", multiple: true, hidden: true, "aria-label": t("attach") });
    this.think = h("button.pill.think", { type: "button", hidden: true, onclick: () => this.turnThinking() }, icon("think"), h("span"));
    this.go = h("button.send", { type: "button", onclick: () => this.press() });
    this.used = h("span.context-used", { title: t("contextMore") });
    this.card = h(
      "div.composer-card",
      null,
      this.chips,
      this.area,
      h("div.tools", null, iconButton("clip", t("attach"), () => this.input.click()), this.think, h("span.grow"), this.used, this.go),
    );
    this.element = h("div.composer", null, this.card, h("p.hint", null, t("hint")), this.input);
    this.area.value = recall("draft", "sessionStorage") || "";
    this.listen();
    this.show();
  }

  listen() {
    this.area.addEventListener("input", () => {
      remember("draft", this.area.value, "sessionStorage");
      this.show();
    });
    this.area.addEventListener("keydown", (event) => this.key(event));
    this.area.addEventListener("paste", (event) => {
      const { files } = event.clipboardData;
      if (!files.length) return;
      event.preventDefault();
      this.add(files);
    });
    this.input.addEventListener("change", () => {
      this.add(this.input.files);
      this.input.value = "";
    });
    for (const name of ["chat", "ended", "server", "settings"]) on(name, () => this.show());
  }

  key(event) {
    if (event.key === "ArrowUp" && !this.area.value && !runningIn(state.current)) {
      event.preventDefault();
      this.editLast();
    }
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!runningIn(state.current)) this.send();
  }

  press() {
    if (runningIn(state.current)) stop(state.current);
    else this.send();
    this.area.focus();
  }

  send() {
    const text = this.area.value.trim();
    const ready = this.files.filter((file) => file.text !== undefined);
    if ((!text && !ready.length) || this.files.some((file) => file.isReading)) return;
    const files = ready.map(({ name, text: inside, pages, isCut }) => ({ name, text: inside, pages, isCut }));
    const { current } = state;
    this.files = [];
    this.setText("");
    ask(current, current.leaf, text, files);
  }

  setText(text) {
    this.area.value = text;
    remember("draft", text || null, "sessionStorage");
    this.show();
  }

  // A beginning from the empty page; with a file, the dialog for it opens too.
  suggest(text, wantsFile) {
    this.setText(text);
    this.area.focus();
    if (wantsFile && !this.files.length) this.input.click();
  }

  add(list) {
    for (const file of list) {
      if (file.size > MOST_BYTES) toast(t("fileTooLarge", { name: file.name, limit: bytes(MOST_BYTES) }));
      else this.read(file);
    }
    this.area.focus();
  }

  async read(file) {
    const abort = new AbortController();
    const entry = { name: file.name, isReading: true, abort };
    this.files.push(entry);
    this.show();
    try {
      Object.assign(entry, await readFile(file, abort.signal));
    } catch (error) {
      if (error.name === "AbortError") return;
      const why = error instanceof ApiError && !error.message ? t("unreachable") : String(error.message);
      entry.error = why.replace(`${file.name}: `, ""); // it stands before it already
    }
    entry.isReading = false;
    this.show();
  }

  remove(entry) {
    entry.abort.abort();
    this.files = this.files.filter((other) => other !== entry);
    this.show();
    this.area.focus();
  }

  turnThinking() {
    const next = THINKING[(THINKING.indexOf(state.settings.thinking) + 1) % THINKING.length];
    changeSettings({ thinking: next });
  }

  show() {
    const runs = runningIn(state.current) !== undefined;
    const isEmpty = !this.area.value.trim() && !this.files.some((file) => file.text !== undefined);
    const isReading = this.files.some((file) => file.isReading);
    this.fit();
    this.showFiles();
    if (this.go.dataset.runs !== String(runs)) {
      this.go.dataset.runs = String(runs);
      put(this.go, icon(runs ? "stop" : "send"));
      this.go.setAttribute("aria-label", t(runs ? "stop" : "send"));
      this.go.title = t(runs ? "stop" : "send");
    }
    this.go.disabled = !runs && (isEmpty || isReading);
    this.showThinking();
    this.used.textContent = usedContext();
  }

  showThinking() {
    const { thinking } = state.settings;
    this.think.hidden = !state.server.props?.chat_template_caps?.supports_thinking;
    this.think.dataset.mode = thinking;
    this.think.lastChild.textContent = t({ auto: "thinkAuto", on: "thinkOn", off: "thinkOff" }[thinking]);
  }

  fit() {
    this.area.style.height = "auto";
    this.area.style.height = `${Math.min(TALLEST_PIXELS, this.area.scrollHeight)}px`;
  }

  showFiles() {
    const key = JSON.stringify(this.files.map((file) => [file.name, file.isReading, file.error, file.text?.length]));
    if (key === this.shownFiles) return;
    this.shownFiles = key;
    this.chips.hidden = !this.files.length;
    put(this.chips, this.files.map((file) => this.chip(file)));
  }

  chip(file) {
    const about = file.isReading ? t("reading") : file.error || sizeOf(file);
    const open = () => file.text !== undefined && showText(file.name, file.text);
    return h(
      "span.chip",
      { class: file.error ? "chip bad" : file.isReading ? "chip reading" : "chip", role: file.error && "alert" },
      h("button.chip-open", { type: "button", onclick: open }, icon("file"), h("span.chip-name", null, file.name), h("span.soft", null, about)),
      iconButton("close", t("removeFile", { name: file.name }), () => this.remove(file)),
    );
  }
}

function sizeOf({ pages, text, isCut }) {
  const size = pages === 1 ? t("onePage") : pages ? t("pagesOf", { n: pages }) : t("charactersOf", { n: text.length });
  return isCut ? `${size}, ${t("truncated")}` : size;
}

// How full the context is, as the last answer counted it.
function usedContext() {
  const all = state.server.props?.default_generation_settings?.n_ctx;
  const last = state.current.nodes[state.current.leaf];
  const used = last?.usage?.total_tokens;
  return all && used && !isRunning(last) ? t("contextUsed", { used, all }) : "";
}
