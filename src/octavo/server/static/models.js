// The server's models: which there are, which one is used, how far its loading is.

import { json, send } from "./api.js";
import { recall, remember } from "./remember.js";
import { state, tell } from "./state.js";

const LOADING_MS = 500;
const LOST_MS = 2000;
const IDLE_MS = 15000;

let chosen = recall("model");
let timer = null;

// The id of the model that is asked.
export function currentModel() {
  const { models } = state.server;
  if (models.some((one) => one.id === chosen)) return chosen;
  return (models.find((one) => statusOf(one) === "loaded") || models[0])?.id || "";
}

export const statusOf = (model) => (model.status?.failed ? "failed" : model.status?.value || "loaded");

// Whether models can be loaded and unloaded by request: then there are several, or one that is not.
export const canSwitch = () =>
  state.server.models.length > 1 || state.server.models.some((one) => ["unloaded", "failed"].includes(statusOf(one)));

export function choose(id) {
  chosen = id;
  remember("model", id);
  state.server.props = null;
  tell("server");
  return refresh();
}

export async function load(id) {
  await send("/v1/models/load", { body: { model: id } });
  return choose(id);
}

export async function unload(id) {
  await send("/v1/models/unload", { body: { model: id } });
  return refresh();
}

// Asks again, and after a while once more: soon while something is being loaded.
export async function refresh() {
  clearTimeout(timer);
  const { server } = state;
  try {
    server.models = (await json("/v1/models", { isQuiet: true })).data;
    server.reached = true;
    if (isReady()) server.props ||= await json(`/props?model=${encodeURIComponent(currentModel())}`);
    else server.props = null;
  } catch (error) {
    server.reached = error.status !== 0;
    if (error.status === 0) server.props = null;
  }
  clearTimeout(timer);
  const wait = !server.reached ? LOST_MS : progress() ? LOADING_MS : IDLE_MS;
  timer = setTimeout(refresh, wait);
  tell("server");
}

export const isReady = () => {
  const model = state.server.models.find((one) => one.id === currentModel());
  return state.server.reached && model !== undefined && statusOf(model) === "loaded";
};

// {stage, done, total} in bytes while a model is being loaded, else null.
export function progress() {
  const found = state.server.models.find((one) => one.id === currentModel())?.status;
  if (found?.value !== "loading") return null;
  return { stage: found.stage || "loading", done: found.done_bytes || 0, total: found.total_bytes || 0 };
}

// Resolves when the model is there; AbortError if nobody waits any more.
export async function whenLoaded(signal) {
  do {
    await new Promise((resolve) => setTimeout(resolve, LOADING_MS));
    signal.throwIfAborted();
    await refresh();
  } while (state.server.reached && !isReady());
}
