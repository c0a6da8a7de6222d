// A tool call of the model: its name, its arguments, and a field for what the tool gives back.

import { h, icon } from "./dom.js";
import { t } from "./i18n.js";
import { codeBlock } from "./render.js";

export class Call {
  // `give(text)` takes the result; null: none is wanted any more, or not yet.
  constructor(call, give) {
    this.element = h(
      "section.call",
      { "aria-label": `${t("toolCall")}: ${call.name}` },
      h("div.tool-title", null, icon("tool"), h("span.soft", null, t("toolCall")), h("code", null, call.name)),
      codeBlock({ language: "json", text: pretty(call.arguments) }),
      give ? field(call, give) : null,
    );
  }
}

function field(call, give) {
  const label = t("resultFor", { name: call.name });
  const area = h("textarea", { rows: 2, placeholder: label, "aria-label": label });
  const send = () => give(area.value);
  area.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  const button = h("button.primary", { type: "button", onclick: send }, t("sendResult"));
  return h("div.editor", null, area, h("div.row", null, button));
}

// Arguments are JSON text; while they are written, or if they are wrong, they are shown as they are.
export function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
