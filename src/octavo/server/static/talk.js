// Answers: from a question to the last event of the stream.
//
// An answer's node, besides its text:
//   model, sent (the request without its messages), requestId, started, state: waiting | loading |
//   prompt | thinking | writing | tools | done, thinkMs, usage, timings, progress, finish, error,
//   stopped (by the reader), onlyThought, totalMs, firstMs

import { ApiError, events, send } from "./api.js";
import { addNode, messagesOf, pathTo } from "./conversation.js";
import { currentModel, whenLoaded } from "./models.js";
import { state, tell, touch } from "./state.js";

const running = new Map(); // id of an answer's node -> {abort, conversation}

export const isRunning = (node) => running.has(node.id);
export const runningIn = (conversation) =>
  [...running.entries()].find(([, run]) => run.conversation === conversation)?.[0];

export function ask(conversation, parent, content, files) {
  const node = addNode(conversation, parent, { role: "user", content, files });
  return answer(conversation, node.id);
}

// A new answer behind `parent`. `options` are settings that hold for it alone.
export async function answer(conversation, parent, options = {}) {
  stop(conversation); // one at a time
  const settings = { ...state.settings, ...options };
  const node = addNode(conversation, parent, {
    role: "assistant",
    reasoning: "",
    calls: [],
    model: currentModel(),
    started: Date.now(),
    state: "waiting",
    system: settings.system,
    sent: bodyOf(settings),
  });
  const abort = new AbortController();
  running.set(node.id, { abort, conversation });
  if (state.current === conversation) state.inspected = null;
  touch(conversation, { now: true });
  tell("chat");
  try {
    await follow(conversation, node, abort.signal);
  } catch (error) {
    if (error.name === "AbortError") node.stopped = true;
    else node.error = error instanceof ApiError ? { status: error.status, message: error.message } : { status: 0, message: String(error.message) };
  }
  running.delete(node.id);
  end(node);
  touch(conversation, { now: true });
  tell("node", node);
  tell("ended", node);
}

export function stop(conversation) {
  running.get(runningIn(conversation))?.abort.abort();
}

// Asks the server to end the thinking of a running answer.
export async function answerNow(node) {
  node.isEnding = true;
  tell("node", node);
  try {
    await send(`/v1/requests/${node.requestId}/answer-now`, { body: {} });
  } catch {
    // It ended by itself in the meantime.
  }
}

// The whole request of an answer, as it was sent.
export const requestOf = (conversation, node) => ({
  ...node.sent,
  messages: messagesOf(pathTo(conversation, node.parent), node.system),
});

function bodyOf(settings) {
  const body = { model: currentModel(), messages: [], stream: true };
  const names = { temperature: "temperature", topP: "top_p", maxTokens: "max_tokens", seed: "seed" };
  for (const [from, to] of Object.entries(names)) if (settings[from] !== null) body[to] = settings[from];
  if (settings.thinking !== "auto") body.enable_thinking = settings.thinking === "on";
  if (settings.budget !== null && settings.thinking !== "off") body.thinking_budget_tokens = settings.budget;
  if (settings.tools) body.tools = JSON.parse(settings.tools);
  return { ...body, stream_options: { include_usage: true }, return_progress: true };
}

async function follow(conversation, node, signal) {
  const body = requestOf(conversation, node);
  const response = await begin(node, body, signal);
  node.requestId = response.headers.get("x-request-id");
  node.started = Date.now();
  node.state = "prompt";
  tell("node", node);
  for await (const event of events(response)) {
    if (event.error) throw new ApiError(event.error.code || 500, event.error.message);
    take(node, event);
    touch(conversation, { rises: false });
    tell("node", node);
  }
  if (!node.finish) throw new ApiError(0, "");
}

// The response; while the model is being loaded it waits for it.
async function begin(node, body, signal) {
  for (;;) {
    try {
      return await send("/v1/chat/completions", { body, signal });
    } catch (error) {
      if (error.status !== 503 || error.body?.status !== "loading") throw error;
      node.state = "loading";
      tell("node", node);
      await whenLoaded(signal);
    }
  }
}

function take(node, event) {
  const choice = event.choices?.[0];
  if (event.prompt_progress) node.progress = event.prompt_progress;
  if (event.usage) node.usage = event.usage;
  if (event.timings) node.timings = event.timings;
  if (!choice) return;
  const { reasoning_content: reasoning, content, tool_calls: calls } = choice.delta || {};
  if ((reasoning || content || calls) && node.firstMs === undefined) node.firstMs = Date.now() - node.started;
  if (reasoning) {
    node.thinkStart ||= Date.now();
    node.state = "thinking";
    node.reasoning += reasoning;
  }
  if (content) {
    endThinking(node);
    node.state = "writing";
    node.content += content;
  }
  if (calls) {
    endThinking(node);
    node.state = "tools";
    for (const call of calls) takeCall(node, call);
  }
  if (choice.finish_reason) node.finish = choice.finish_reason;
  if (choice.stopped_thinking) node.onlyThought = true;
}

function takeCall(node, { index, id, function: called }) {
  const call = (node.calls[index ?? node.calls.length] ||= { id: "", name: "", arguments: "" });
  if (id) call.id = id;
  if (called?.name) call.name = called.name;
  call.arguments += called?.arguments || "";
}

function endThinking(node) {
  if (node.thinkStart && node.thinkMs === undefined) node.thinkMs = Date.now() - node.thinkStart;
}

function end(node) {
  endThinking(node);
  node.state = "done";
  node.totalMs = Date.now() - node.started;
  delete node.isEnding;
  delete node.progress;
}

// Answers that were running when the page was closed are no longer.
export function settle(conversation) {
  for (const node of Object.values(conversation.nodes)) {
    if (node.role === "assistant" && node.state !== "done" && !running.has(node.id)) {
      end(node);
      node.stopped = true;
    }
  }
}
