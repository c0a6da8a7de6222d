// A conversation is a tree of messages: answering again, or editing, grows a new branch beside the
// old one. `leaf` is the end of the branch that is shown.
//
//   conversation: {id, title, created, updated, leaf, nodes: {id: node}}
//   node: {id, parent, role: user | assistant | tool, content, created, ...}
//     user: files [{name, text, pages}]        tool: callId, name
//     assistant: reasoning, calls [{id, name, arguments}], sent, figures; see talk.js

const LONGEST_TITLE = 60;

export const newId = () => crypto.randomUUID?.() || `${Date.now()}-${Math.random().toString(36).slice(2)}`;

export function newConversation() {
  const now = Date.now();
  return { id: newId(), title: "", created: now, updated: now, leaf: null, nodes: {} };
}

// Adds a message behind `parent` (null: at the beginning) and shows its branch.
export function addNode(conversation, parent, fields) {
  const node = { id: newId(), parent, created: Date.now(), content: "", ...fields };
  conversation.nodes[node.id] = node;
  conversation.leaf = node.id;
  if (!conversation.title && node.role === "user") {
    const first = (node.content || node.files?.[0]?.name || "").trim().replace(/\s+/g, " ");
    conversation.title = first.length > LONGEST_TITLE ? `${first.slice(0, LONGEST_TITLE - 1)}…` : first;
  }
  return node;
}

// The messages of the branch that ends with `id`, the first one first.
export function pathTo(conversation, id) {
  const path = [];
  for (let node = conversation.nodes[id]; node; node = conversation.nodes[node.parent]) path.unshift(node);
  return path;
}

// All versions of a message, the oldest first.
export function versions(conversation, node) {
  return Object.values(conversation.nodes)
    .filter((other) => other.parent === node.parent && other.role === node.role && other.callId === node.callId)
    .sort((a, b) => a.created - b.created);
}

// Shows the branch through `node`, as far as it goes, along the newest messages.
export function showBranch(conversation, node) {
  let last = node;
  for (;;) {
    const next = Object.values(conversation.nodes)
      .filter((other) => other.parent === last.id)
      .sort((a, b) => b.created - a.created)[0];
    if (!next) break;
    last = next;
  }
  conversation.leaf = last.id;
}

// A question as the model reads it: its files first, page by page.
export function textOf(node) {
  const files = (node.files || []).map((file) => `<document name=${JSON.stringify(file.name)}>\n${file.text}\n</document>`);
  return [...files, node.content].filter(Boolean).join("\n\n");
}

// The messages of a branch as the API takes them. Answers that failed are left out; questions
// that follow each other then become one, because many models want turns.
export function messagesOf(path, system) {
  const messages = system ? [{ role: "system", content: system }] : [];
  for (const node of path) {
    const last = messages[messages.length - 1];
    if (node.role === "user" && last?.role === "user") last.content += `\n\n${textOf(node)}`;
    else if (node.role === "user") messages.push({ role: "user", content: textOf(node) });
    else if (node.role === "tool") {
      messages.push({ role: "tool", tool_call_id: node.callId, name: node.name, content: node.content });
    } else if (node.content || node.calls?.length) messages.push(answerOf(node));
  }
  return messages;
}

function answerOf(node) {
  const message = { role: "assistant", content: node.content };
  if (node.reasoning) message.reasoning_content = node.reasoning;
  if (node.calls?.length) {
    message.tool_calls = node.calls.map((call) => ({
      id: call.id,
      type: "function",
      function: { name: call.name, arguments: call.arguments },
    }));
  }
  return message;
}

// For people: the branch that is shown.
export function asMarkdown(conversation, words) {
  const parts = [`# ${conversation.title || words.untitled}`];
  for (const node of pathTo(conversation, conversation.leaf)) {
    const who = node.role === "user" ? words.you : node.role === "tool" ? node.name : node.model || words.model;
    const files = (node.files || []).map((file) => `*${file.name}*\n\n`).join("");
    const calls = (node.calls || []).map((call) => `\n\n\`\`\`json\n${call.name} ${call.arguments}\n\`\`\``).join("");
    parts.push(`## ${who}\n\n${files}${node.content}${calls}`);
  }
  return `${parts.join("\n\n")}\n`;
}

// Conversations out of a file that `Export all` wrote; what is no conversation is left out.
export function fromFile(text) {
  const read = JSON.parse(text);
  const given = Array.isArray(read?.conversations) ? read.conversations : [];
  return given.filter(isConversation);
}

const ROLES = ["user", "assistant", "tool"];

function isConversation(given) {
  if (typeof given?.id !== "string" || typeof given.nodes !== "object" || !given.nodes) return false;
  if (typeof given.title !== "string" || !Number.isFinite(given.updated)) return false;
  return Object.entries(given.nodes).every(([id, node]) => isNode(id, node, given.nodes)) && !hasCircle(given);
}

function isNode(id, node, all) {
  const hasParent = node?.parent === null || Object.hasOwn(all, node?.parent);
  const lists = [node?.files, node?.calls].every((list) => list === undefined || Array.isArray(list));
  return node?.id === id && hasParent && lists && ROLES.includes(node.role) && typeof node.content === "string";
}

function hasCircle({ nodes, leaf }) {
  if (leaf !== null && !Object.hasOwn(nodes, leaf)) return true;
  const sound = new Set([null]);
  for (const start of Object.keys(nodes)) {
    const seen = new Set();
    for (let id = start; !sound.has(id); id = nodes[id].parent) {
      if (seen.has(id)) return true;
      seen.add(id);
    }
    for (const id of seen) sound.add(id);
  }
  return false;
}
