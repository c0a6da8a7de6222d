// What the page knows. Parts of the page change it through functions here, and hear of changes by
// name: list (of conversations), chat (another one, or another branch), node (a message grew),
// server (models, properties, progress), settings, shown (the message in the side panel).

import * as storage from "./storage.js";
import { newConversation } from "./conversation.js";
import { recall, remember } from "./remember.js";

const SAVE_MS = 1500;
const hearers = new Map();

export const DEFAULTS = {
  system: "",
  temperature: null,
  topP: null,
  maxTokens: null,
  seed: null,
  thinking: "auto",
  budget: null,
  tools: "",
};

export const state = {
  conversations: [], // the newest first
  current: newConversation(), // joins the list with its first message
  settings: { ...DEFAULTS, ...recall("settings") },
  inspected: null, // id of the answer that the side panel shows; null: the latest
  server: { models: [], props: null, reached: true },
};

export function on(name, hear) {
  if (!hearers.has(name)) hearers.set(name, new Set());
  hearers.get(name).add(hear);
}

export function tell(name, value) {
  for (const hear of hearers.get(name) || []) hear(value);
}

// Everything that heard is gone: the page is built anew, in another language.
export function forgetHearers() {
  hearers.clear();
}

export async function readConversations(lost) {
  state.conversations = await storage.readAll(lost);
  const last = recall("open", "sessionStorage");
  const found = state.conversations.find((one) => one.id === last);
  if (found) state.current = found;
}

export function changeSettings(changes) {
  Object.assign(state.settings, changes);
  remember("settings", state.settings);
  tell("settings");
}

export function openConversation(conversation) {
  state.current = conversation || newConversation();
  state.inspected = null;
  remember("open", state.current.id, "sessionStorage");
  tell("chat");
  tell("list");
}

// Notes that a conversation changed: it moves to the top and is written to disk soon.
export function touch(conversation, { now = false, rises = true } = {}) {
  if (rises) conversation.updated = Date.now();
  if (!state.conversations.includes(conversation)) state.conversations.push(conversation);
  state.conversations.sort((a, b) => b.updated - a.updated);
  remember("open", state.current.id, "sessionStorage");
  if (now) flush(conversation);
  else if (!waiting.has(conversation)) waiting.set(conversation, setTimeout(() => flush(conversation), SAVE_MS));
  if (rises) tell("list");
}

const waiting = new Map();

function flush(conversation) {
  clearTimeout(waiting.get(conversation));
  waiting.delete(conversation);
  if (state.conversations.includes(conversation)) return storage.write(conversation);
  return Promise.resolve();
}

// Before the page goes: what has not been written yet.
export function flushAll() {
  for (const conversation of [...waiting.keys()]) flush(conversation);
}

export async function deleteConversation(conversation) {
  state.conversations = state.conversations.filter((one) => one !== conversation);
  if (state.current === conversation) openConversation(null);
  await storage.erase(conversation.id);
  tell("list");
}
