// The name of the model above the conversation, and the list behind it.

import { toast } from "./dialogs.js";
import { h, icon, put } from "./dom.js";
import { bytes, number, t } from "./i18n.js";
import { canSwitch, choose, currentModel, isReady, load, progress, statusOf, unload } from "./models.js";
import { on, state } from "./state.js";

const WORDS = { lost: "unreachable", ready: "loaded", busy: "loading", idle: "unloaded" };
const STAGES = { fetching: "fetching", loading: "loading", starting: "starting" };

export class ModelMenu {
  constructor() {
    this.name = h("span.model-name");
    this.dot = h("span.dot");
    this.bar = h("span.model-bar", { hidden: true }, h("i"));
    this.summary = h("summary.model-button", { role: "button" }, this.dot, this.name, icon("down"), this.bar);
    this.list = h("div.menu-list.models", { "aria-label": t("models") });
    this.element = h("details.menu.model-menu", null, this.summary, this.list);
    on("server", () => this.show());
    this.show();
  }

  show() {
    const id = currentModel();
    const loading = progress();
    const kind = !state.server.reached ? "lost" : isReady() ? "ready" : loading ? "busy" : "idle";
    this.dot.className = `dot ${kind}`;
    this.name.textContent = state.server.reached || id ? id || t("noModel") : t("noModel");
    this.summary.setAttribute("aria-label", `${t("model")}: ${id || t("noModel")}, ${t(WORDS[kind])}`);
    this.bar.hidden = !loading;
    if (loading) this.bar.firstChild.style.width = `${shareOf(loading)}%`;
    const key = JSON.stringify([state.server.models, id, loading, state.server.reached]);
    if (key !== this.shown) put(this.list, this.rows(id, loading));
    this.shown = key;
  }

  rows(id, loading) {
    if (!state.server.reached) return h("p.soft", null, t("unreachable"));
    return state.server.models.map((model) => this.row(model, model.id === id, loading));
  }

  row(model, isUsed, loading) {
    const status = statusOf(model);
    const words = { loaded: "loaded", loading: "loading", unloaded: "unloaded", failed: "failedToLoad" };
    const isLoading = isUsed && loading;
    const about = [isLoading ? null : t(words[status] || "unloaded"), model.status?.error].filter(Boolean);
    if (model.meta?.size) about.push(bytes(model.meta.size));
    if (model.meta?.n_ctx) about.push(t("contextOf", { n: model.meta.n_ctx }));
    return h(
      isUsed ? "div.model-row.used" : "div.model-row",
      null,
      h("div.model-row-head", null, h("strong", null, model.id), isUsed ? h("span.tag", null, t("using")) : null),
      h("div.soft", null, about.join(" · ")),
      isLoading ? progressBar(loading) : null,
      canSwitch() ? h("div.row", null, this.buttons(model, isUsed, status)) : null,
    );
  }

  buttons(model, isUsed, status) {
    const act = (key, todo) => h("button.plain", { type: "button", onclick: () => todo(model.id).catch((error) => toast(error.message)) }, t(key));
    if (status === "loaded") return [isUsed ? null : act("use", choose), act("unload", unload)];
    return status === "loading" ? null : act("load", load);
  }
}

const shareOf = ({ done, total }) => (total ? (100 * done) / total : 5);

function progressBar(loading) {
  const { stage, done, total } = loading;
  const words = t(STAGES[stage] || "loading");
  const bar = h("div.progress", { role: "progressbar", "aria-valuenow": Math.round(shareOf(loading)), "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": words }, h("i"));
  bar.firstChild.style.width = `${shareOf(loading)}%`;
  const text = total ? `${t("stageOf", { stage: words, done: bytes(done), all: bytes(total) })} (${number(shareOf(loading))} %)` : words;
  return [bar, h("div.soft", null, text)];
}
