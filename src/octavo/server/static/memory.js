// Where the memory goes: the plan of the loaded model as a bar, and the machine around it.

import { json } from "./api.js";
import { h, put } from "./dom.js";
import { bytes, number, t } from "./i18n.js";
import { currentModel, isReady } from "./models.js";
import { on } from "./state.js";

const WORDS = ["trunk", "embedding", "head", "experts", "mtp", "cache", "states", "scratch", "pool", "ring", "context", "slack"];

export class Memory {
  constructor() {
    this.element = h("div.panel-body");
    this.known = "";
    on("server", () => this.isDue() && this.show());
  }

  isDue() {
    return this.element.isConnected && this.known !== (isReady() ? currentModel() : "");
  }

  async show() {
    this.known = isReady() ? currentModel() : "";
    if (!this.known) {
      put(this.element, h("p.soft", null, t("waitingForModel")));
      return;
    }
    try {
      put(this.element, picture(await json(`/v1/memory?model=${encodeURIComponent(this.known)}`)));
    } catch (error) {
      put(this.element, h("p.bad", null, error.message || t("unreachable")));
    }
  }
}

const nameOf = (part) => (WORDS.includes(part.name) ? t(part.name) : part.name);

function picture(memory) {
  return [
    h("p.soft", null, t("memoryMore")),
    memory.fits ? null : h("p.bad", null, t("doesNotFit")),
    memory.places.map((place) => placeOf(place, memory.places.length > 1)),
    facts(memory),
  ];
}

function placeOf(place, isNamed) {
  const used = place.parts.reduce((sum, part) => sum + part.bytes, 0);
  const left = Math.max(0, place.available_bytes - used);
  const kept = Math.min(place.reserve_bytes, left);
  const rows = place.parts.map((part) => ({ kind: kindOf(part), name: nameOf(part), bytes: part.bytes }));
  rows.push({ kind: "reserve", name: t("reserve"), bytes: kept }, { kind: "free", name: t("free"), bytes: left - kept });
  const shown = rows.filter((row) => row.bytes > 0);
  return h(
    "section.place",
    null,
    isNamed ? h("h3", null, place.place === "video" ? place.name : t("mainMemory")) : null,
    h("p.big", null, t("planned", { used: bytes(used), all: bytes(place.available_bytes) })),
    bar(shown),
    h("ul.parts", null, shown.map((row) => line(row, used + left))),
  );
}

// Kinds of weights share a colour, in several strengths.
const kindOf = ({ group, name }) => (group === "weights" ? `weights w-${name}` : group);

function bar(rows) {
  const element = h("div.stack", { "aria-hidden": "true" });
  for (const row of rows) {
    const piece = h("i", { class: row.kind, title: `${row.name}: ${bytes(row.bytes)}` });
    piece.style.flexGrow = String(row.bytes);
    element.append(piece);
  }
  return element;
}

function line(row, all) {
  const share = (100 * row.bytes) / all;
  const percent = share >= 0.1 ? `${number(share, share < 10 ? 1 : 0)} %` : "< 0.1 %";
  return h("li", null, h("i", { class: row.kind }), h("span", null, row.name), h("b", null, bytes(row.bytes)), h("span.soft", null, percent));
}

function facts(memory) {
  const rows = [
    ["weights", t(memory.weights === "map" ? "weightsMapped" : "weightsRead")],
    ["cacheFormat", memory.cache_format],
    ["sequences", `${number(memory.sequences)} × ${t("tokensOf", { n: memory.context })}`],
    ["perToken", bytes(memory.read_bytes_per_token)],
    ["process", bytes(memory.process_bytes)],
    ["machineFree", bytes(memory.machine_free_bytes)],
    ["machine", bytes(memory.machine_bytes)],
  ];
  return h("dl.facts", null, rows.filter(([, value]) => value).map(([key, value]) => [h("dt", null, t(key)), h("dd", null, value)]));
}
