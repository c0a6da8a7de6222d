// The API to read and to try: made of /openapi.json alone, with nothing from elsewhere.

import { h, put } from "./dom.js";

const EXAMPLES = {
  "/v1/chat/completions": { messages: [{ role: "user", content: "Say hello." }], stream: true },
  "/v1/completions": { prompt: "The river was", max_tokens: 16 },
  "/v1/responses": { input: "Say hello.", stream: true },
  "/v1/responses/input_tokens": { input: "Say hello." },
  "/v1/embeddings": { input: "The river was low." },
  "/v1/messages": { max_tokens: 64, messages: [{ role: "user", content: "Say hello." }], stream: true },
  "/v1/messages/count_tokens": { messages: [{ role: "user", content: "Say hello." }] },
  "/completion": { prompt: "The river was", n_predict: 16 },
  "/infill": { input_prefix: "def add(a, b):\n    return ", input_suffix: "\n", n_predict: 16 },
  "/tokenize": { content: "The river was low." },
  "/detokenize": { tokens: [1, 2, 3] },
  "/apply-template": { messages: [{ role: "user", content: "Say hello." }] },
};

const main = document.getElementById("docs");
const key = h("input", { type: "password", autocomplete: "off", name: "key" });

load();

async function load() {
  const asks = h("label", {}, "API key, if the server wants one", key);
  const answer = await fetch("/openapi.json", { headers: headers() });
  if (!answer.ok) {
    const again = h("button.primary", { type: "button", onclick: load }, "Open");
    put(main, h("h1", {}, "Octavo: the API"), h("p", {}, `The server answered ${answer.status}.`), asks, again);
    return;
  }
  const schema = await answer.json();
  const groups = new Map();
  for (const [path, methods] of Object.entries(schema.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const tag = (operation.tags || ["Other"])[0];
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push(operationView(schema, method.toUpperCase(), path, operation));
    }
  }
  const parts = [...groups].map(([tag, views]) => [h("h2", {}, tag), views]);
  put(main, h("h1", {}, "Octavo: the API"), asks, parts);
}

function operationView(schema, method, path, operation) {
  const body = resolve(schema, operation.requestBody?.content?.["application/json"]?.schema);
  const names = (operation.parameters || []).filter((p) => p.in !== "header");
  const fields = names.map((p) => ({ place: p.in, name: p.name, input: h("input", { name: p.name }) }));
  const example = JSON.stringify(EXAMPLES[path] || {}, null, 2);
  const text = body ? h("textarea", { name: "body", spellcheck: "false", value: example }) : null;
  const output = h("pre", { hidden: true, "aria-live": "polite" });
  const send = h("button.primary", { type: "button" }, "Send");
  send.addEventListener("click", () => tryOut(method, path, fields, text, output, send));
  return h(
    "details",
    { "data-path": path },
    h("summary", {}, h("b", {}, method), h("code", {}, path), h("span.soft", {}, operation.summary || "")),
    h(
      "div.inside",
      {},
      h("p", {}, operation.description || ""),
      body && fieldList(schema, body),
      fields.map((field) => h("label", {}, `${field.name} (${field.place})`, field.input)),
      text && h("label", {}, "Body", text),
      h("div", {}, send),
      output,
    ),
  );
}

function fieldList(schema, body) {
  const required = new Set(body.required || []);
  const entries = Object.entries(body.properties || {});
  return h(
    "dl",
    {},
    entries.map(([name, value]) => [
      h("dt", {}, h("code", {}, name), required.has(name) ? " *" : ""),
      h("dd", {}, typeText(schema, value)),
    ]),
  );
}

// A type in a few words: "string or list of integer".
function typeText(schema, given, depth = 0) {
  const value = resolve(schema, given);
  if (!value || depth > 3) return "anything";
  const choices = value.anyOf || value.oneOf;
  if (choices) {
    const real = choices.filter((choice) => choice.type !== "null");
    return [...new Set(real.map((choice) => typeText(schema, choice, depth + 1)))].join(" or ");
  }
  const limits = ["minimum", "maximum", "minItems", "maxItems"].filter((word) => word in value);
  const said = limits.map((word) => ` ${word} ${value[word]}`).join(",");
  if (value.type === "array") return `list of ${typeText(schema, value.items, depth + 1)}${said}`;
  if (value.enum) return value.enum.map((item) => JSON.stringify(item)).join(" or ");
  return `${value.type || "anything"}${said}`;
}

function resolve(schema, value) {
  if (!value || !value.$ref) return value;
  return value.$ref.slice(2).split("/").reduce((at, step) => at[step], schema);
}

function headers(more) {
  const token = key.value.trim();
  return { ...more, ...(token ? { authorization: `Bearer ${token}` } : {}) };
}

async function tryOut(method, path, fields, text, output, send) {
  let address = path;
  const query = new URLSearchParams();
  for (const { place, name, input } of fields) {
    if (place === "path") address = address.replace(new RegExp(`\\{${name}(:path)?\\}`), encodeURIComponent(input.value));
    else if (input.value) query.set(name, input.value);
  }
  if (query.size) address += `?${query}`;
  const options = { method, headers: headers(method === "GET" ? {} : { "content-type": "application/json" }) };
  if (text) options.body = text.value;
  send.disabled = true;
  output.hidden = false;
  try {
    const answer = await fetch(address, options);
    output.textContent = `${answer.status} ${answer.headers.get("x-request-id") || ""}\n\n`;
    await show(answer, output);
  } catch (error) {
    output.textContent += String(error);
  }
  send.disabled = false;
}

// Streams appear as they come; JSON is laid out.
async function show(answer, output) {
  if ((answer.headers.get("content-type") || "").startsWith("application/json")) {
    output.append(JSON.stringify(await answer.json(), null, 2));
    return;
  }
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) output.append(part.value);
}
