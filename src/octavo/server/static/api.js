// Requests to the server this page came from, and to no other.

import { recall, remember } from "./remember.js";

let key = recall("key") || recall("key", "sessionStorage") || "";
let askForKey = () => Promise.reject(new ApiError(401, "no key"));

export class ApiError extends Error {
  constructor(status, message, body = {}, retrySeconds = 0) {
    super(message);
    this.status = status; // 0: the server was not reached
    this.body = body;
    this.retrySeconds = retrySeconds;
  }
}

// `ask(wasRefused)` gives the promise of whether a key was entered.
export function onKeyWanted(ask) {
  askForKey = ask;
}

export const hasKey = () => key !== "";

export function setKey(value, keep) {
  key = value;
  remember("key", keep && value ? value : null);
  remember("key", value || null, "sessionStorage");
}

// A response with status 2xx. Where the server wants a key the reader is asked for one; a request
// that nobody made by hand (`isQuiet`) does so only once.
export async function send(path, { body, signal, method, isQuiet = false } = {}) {
  for (;;) {
    const used = key;
    const response = await once(path, { body, signal, method });
    if (response.ok) return response;
    if (response.status !== 401 || (isQuiet && isDeclined)) throw await errorOf(response);
    if (key !== used) continue; // it came in the meantime
    isDeclined = !(await wantKey(used !== ""));
    if (isDeclined) throw await errorOf(response);
  }
}

let isDeclined = false;
let wanted = null; // several requests that are refused at once ask once

function wantKey(wasRefused) {
  wanted ||= askForKey(wasRefused).finally(() => {
    wanted = null;
  });
  return wanted;
}

export const json = async (path, options) => (await send(path, options)).json();

async function once(path, { body, signal, method }) {
  const headers = {};
  if (key) headers.authorization = `Bearer ${key}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  try {
    return await fetch(path, {
      method: method || (body === undefined ? "GET" : "POST"),
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "");
  }
}

async function errorOf(response) {
  const retry = Number(response.headers.get("retry-after")) || 0;
  let body = {};
  try {
    body = await response.json();
  } catch {
    // Whatever stands between us and the server answered in its own way.
  }
  const message = body.error?.message || `${response.status} ${response.statusText}`;
  return new ApiError(response.status, message, body, retry);
}

// The JSON values of a stream of server-sent events, until [DONE] or its end.
export async function* events(response) {
  let rest = "";
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  for (;;) {
    const { value, done } = await reader.read();
    rest += done ? decoder.decode() : decoder.decode(value, { stream: true });
    const lines = rest.split(/\r\n|\n|\r(?!$)/);
    rest = done ? "" : lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue; // comments are pings
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
    if (done) return;
  }
}
