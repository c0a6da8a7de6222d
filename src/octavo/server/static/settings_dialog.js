// Settings: how answers are made, how the page looks, and what is kept.

import { hasKey, setKey } from "./api.js";
import { fromFile } from "./conversation.js";
import { openDialog, toast } from "./dialogs.js";
import { download, h, icon } from "./dom.js";
import { LANGUAGES, language, shortcut, t } from "./i18n.js";
import { changeSettings, deleteConversation, openConversation, state, tell, touch } from "./state.js";
import { setTheme, theme, THEMES } from "./theme.js";

// `chooseLanguage(code)` builds the page anew.
export function openSettings(chooseLanguage) {
  const form = h("form.form.settings", { method: "dialog" }, answers(), tools(), looks(chooseLanguage), kept(), keyboard());
  form.addEventListener("submit", (event) => event.preventDefault());
  const dialog = openDialog(t("settings"), form, { kind: "side" });
  dialog.id = "settings-dialog";
}

let count = 0;

// A label, its field and a line about it.
function row(key, hintText, field) {
  count += 1;
  field.id = `field-${count}`;
  const hint = hintText ? h("p.soft", { id: `hint-${count}` }, hintText) : null;
  if (hint) field.setAttribute("aria-describedby", hint.id);
  return h("div.field", null, h("label", { for: field.id }, t(key)), field, hint);
}

// A number, or nothing for what the server does by itself.
function numberField(name, { min, max, step, standard }) {
  const value = state.settings[name];
  const placeholder = standard === undefined ? "" : t("byDefault", { value: String(standard) });
  const input = h("input", { type: "number", min, max, step, placeholder, inputmode: "decimal", "data-setting": name, value: value ?? "" });
  input.addEventListener("change", () => {
    if (input.checkValidity()) changeSettings({ [name]: input.value === "" ? null : Number(input.value) });
    else input.reportValidity();
  });
  return input;
}

function select(options, chosen, change, props) {
  const made = options.map(([value, text]) => h("option", { value, selected: value === chosen }, text));
  const element = h("select", props, made);
  element.addEventListener("change", () => change(element.value));
  return element;
}

function answers() {
  const standard = state.server.props?.default_generation_settings?.params || {};
  const system = h("textarea", { rows: 4, "data-setting": "system", value: state.settings.system });
  system.addEventListener("input", () => changeSettings({ system: system.value.trim() }));
  const modes = [
    ["auto", t("auto")],
    ["on", t("on")],
    ["off", t("off")],
  ];
  const think = select(modes, state.settings.thinking, (value) => changeSettings({ thinking: value }), { "data-setting": "thinking" });
  return h(
    "fieldset",
    null,
    h("legend", null, t("sampling")),
    row("system", t("systemHint"), system),
    row("thinkMode", "", think),
    row("budget", t("budgetHint"), numberField("budget", { min: 0, step: 1 })),
    row("temperature", t("temperatureHint"), numberField("temperature", { min: 0, max: 2, step: 0.05, standard: standard.temperature })),
    row("topP", t("topPHint"), numberField("topP", { min: 0, max: 1, step: 0.01, standard: standard.top_p })),
    row("maxTokens", t("maxTokensHint"), numberField("maxTokens", { min: 1, step: 1 })),
    row("seed", t("seedHint"), numberField("seed", { min: 0, step: 1 })),
  );
}

function tools() {
  const wrong = h("p.bad", { role: "alert", hidden: true });
  const area = h("textarea.mono", { rows: 5, spellcheck: "false", "data-setting": "tools", value: state.settings.tools });
  area.addEventListener("change", () => {
    const fault = faultOf(area.value);
    wrong.hidden = !fault;
    wrong.textContent = fault ? t("toolsWrong", { why: fault }) : "";
    if (!fault) changeSettings({ tools: area.value.trim() });
  });
  return h("fieldset", null, h("legend", null, t("tools")), row("tools", t("toolsHint"), area), wrong);
}

function faultOf(text) {
  if (!text.trim()) return "";
  try {
    const read = JSON.parse(text);
    const isSound = Array.isArray(read) && read.every((tool) => typeof tool?.function?.name === "string");
    return isSound ? "" : '[{"type": "function", "function": {"name": …}}]';
  } catch (error) {
    return error.message;
  }
}

function looks(chooseLanguage) {
  const words = { system: "system_theme", light: "light", dark: "dark" };
  const themes = THEMES.map((name) => [name, t(words[name])]);
  return h(
    "fieldset",
    null,
    h("legend", null, t("appearance")),
    row("theme", "", select(themes, theme(), setTheme, { "data-setting": "theme" })),
    row("language", "", select(Object.entries(LANGUAGES), language(), chooseLanguage, { "data-setting": "language" })),
  );
}

function kept() {
  const input = h("input", { type: "file", accept: ".json,application/json", hidden: true, "aria-label": t("importAll") });
  input.addEventListener("change", async () => {
    await readIn(input.files[0]);
    input.value = "";
  });
  const act = (drawing, key, todo) => h("button.plain", { type: "button", "data-act": key, onclick: todo }, icon(drawing), t(key));
  const forget = hasKey() ? act("close", "forgetKey", () => setKey("", false)) : null;
  return h(
    "fieldset",
    null,
    h("legend", null, t("data")),
    h("div.row.wrap", null, act("save", "exportAll", exportAll), act("open", "importAll", () => input.click()), act("trash", "deleteAll", deleteAll), forget),
    input,
  );
}

function exportAll() {
  const text = JSON.stringify({ format: "octavo-conversations", version: 1, conversations: state.conversations }, null, 1);
  download("octavo-conversations.json", "application/json", text);
}

async function readIn(file) {
  if (!file) return;
  try {
    const found = fromFile(await file.text());
    if (!found.length) throw new Error("none");
    for (const one of found) {
      state.conversations = state.conversations.filter((other) => other.id !== one.id);
      touch(one, { now: true, rises: false });
    }
    const replaced = found.find((one) => one.id === state.current.id);
    if (replaced) openConversation(replaced);
    tell("list");
    toast(t("imported", { n: found.length }));
  } catch {
    toast(t("notImported"));
  }
}

async function deleteAll() {
  const all = [...state.conversations];
  if (!all.length || !window.confirm(t("deleteAllSure", { n: all.length }))) return;
  for (const one of all) await deleteConversation(one);
}

function keyboard() {
  const rows = [
    ["Enter", "keySend"],
    ["Shift Enter", "keyLine"],
    ["Esc", "keyStop"],
    [shortcut("K"), "keyNew"],
    [shortcut("B"), "keyList"],
    ["↑", "keyEdit"],
  ];
  const list = rows.map(([keys, key]) => [h("dt", null, keys.split(" ").map((one) => h("kbd", null, one))), h("dd", null, t(key))]);
  return h("fieldset", null, h("legend", null, t("keys")), h("dl.keys", null, list));
}
