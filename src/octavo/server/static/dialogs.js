// Windows over the page, and short notes at its edge.

import { h, iconButton } from "./dom.js";
import { t } from "./i18n.js";

const TOAST_MS = 7000;

// A dialog with a title. The browser keeps the focus inside; Escape closes it. It is gone when closed.
export function openDialog(title, content, { onclose, kind = "" } = {}) {
  const close = iconButton("close", t("close"), () => dialog.close());
  const dialog = h("dialog", { "aria-label": title, class: `dialog ${kind}` }, h("header", null, h("h2", null, title), close), content);
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  dialog.addEventListener("close", () => {
    dialog.remove();
    onclose?.();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

export function showText(title, text) {
  openDialog(title, h("pre.text", { tabindex: 0 }, text), { kind: "wide" });
}

// A note for some seconds, with something to do about it.
export function toast(text, action, act) {
  const place = document.getElementById("toasts");
  const note = h("div.toast", { role: "status" }, h("span", null, text));
  if (action) {
    const button = h("button.plain", { type: "button" }, action);
    button.addEventListener("click", () => {
      act();
      note.remove();
    });
    note.append(button);
  }
  place.append(note);
  setTimeout(() => note.remove(), TOAST_MS);
}

// Asks for the key of the server. Resolves with whether one was entered.
export function askForKey(wasRefused, setKey) {
  return new Promise((resolve) => {
    const input = h("input", { type: "password", id: "key", autocomplete: "off", required: true, spellcheck: "false" });
    const keep = h("input", { type: "checkbox", id: "keep" });
    const form = h(
      "form.form",
      { method: "dialog" },
      h("p.soft", null, t("keyMore")),
      wasRefused ? h("p.bad", { role: "alert" }, t("keyWrong")) : null,
      h("label", { for: "key" }, t("keyField")),
      input,
      h("label.check", { for: "keep" }, keep, t("keyKeep")),
      h("div.row", null, h("button.primary", { type: "submit" }, t("keyGo"))),
    );
    let isEntered = false;
    form.addEventListener("submit", () => {
      isEntered = true;
      setKey(input.value.trim(), keep.checked);
    });
    const dialog = openDialog(t("keyTitle"), form, { kind: "small", onclose: () => resolve(isEntered) });
    dialog.id = "key-dialog";
    input.focus();
  });
}
