// Elements are built here and nowhere else from markup: what a model wrote only ever becomes text.

// h("button.primary", {onclick: f, "aria-label": "Send"}, "Send", child, ...)
// The tag may carry classes. Properties that begin with "on" are listeners; true sets an empty
// attribute; null, undefined and false leave it out. Children are nodes, texts, lists, or nothing.
export function h(tag, props, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name || "div");
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "value" || key === "checked" || key === "disabled") element[key] = value;
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  fill(element, children);
  return element;
}

function fill(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) fill(element, child);
    else if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

// Give an element new children, and return it.
export function put(element, ...children) {
  element.replaceChildren();
  fill(element, children);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

// Drawings of 20 x 20, stroked with the colour of the text around them.
const PATHS = {
  plus: "M10 4v12M4 10h12",
  send: "M10 16V4.5M5 9l5-5 5 5",
  stop: "M6 6h8v8H6z",
  clip: "M14.5 9.5l-5 5a3 3 0 0 1-4.3-4.3l6-6a2 2 0 0 1 2.9 2.9l-6 6a1 1 0 0 1-1.4-1.4l5-5",
  copy: "M7.5 7.5h8v8h-8zM4.5 12.5v-8h8",
  check: "M4.5 10.5l3.5 3.5 7.5-8",
  edit: "M12.5 5l2.5 2.5L8 14.5l-3.5 1 1-3.5z",
  again: "M15.5 10a5.5 5.5 0 1 1-1.8-4.1M15.5 3.5v3h-3",
  look: "M4 16V9M8 16V4M12 16v-5M16 16V7",
  left: "M12 5l-5 5 5 5",
  right: "M8 5l5 5-5 5",
  down: "M5 8l5 5 5-5",
  close: "M5.5 5.5l9 9M14.5 5.5l-9 9",
  menu: "M3.5 6h13M3.5 10h13M3.5 14h13",
  more: "M5 10h.01M10 10h.01M15 10h.01",
  settings: "M4 6.5h7M15 6.5h1M4 13.5h1M9 13.5h7M13 4.7v3.6M7 11.7v3.6",
  memory: "M5 5.5h10v9H5zM8 8.5h4v3H8zM7.5 3.5v2M12.5 3.5v2M7.5 14.5v2M12.5 14.5v2",
  sun: "M10 7a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM10 2.5v1.5M10 16v1.5M2.5 10H4M16 10h1.5M4.7 4.7l1 1M14.3 14.3l1 1M15.3 4.7l-1 1M5.7 14.3l-1 1",
  moon: "M15.5 12A6.2 6.2 0 0 1 8 4.5a6 6 0 1 0 7.5 7.5z",
  globe: "M10 3.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM3.5 10h13M10 3.5c2.2 2 2.9 4 2.9 6.5s-.7 4.5-2.9 6.5c-2.2-2-2.9-4-2.9-6.5s.7-4.5 2.9-6.5z",
  trash: "M4.5 6h11M8 6V4.5h4V6M6 6l.6 9.5h6.8L14 6",
  save: "M10 4v8M6.5 9l3.5 3.5L13.5 9M4.5 15.5h11",
  open: "M10 12.5v-8M6.5 8L10 4.5 13.5 8M4.5 15.5h11",
  file: "M6 3.5h5l3.5 3.5v9.5H6zM11 3.5V7h3.5",
  tool: "M12.5 4a3.5 3.5 0 0 0-3.3 4.6L4.5 13.3l2.2 2.2 4.7-4.7A3.5 3.5 0 0 0 16 7.5l-2 1.3-1.8-1 .1-2.1L14.2 4.4A3.5 3.5 0 0 0 12.5 4z",
  think: "M7.5 14.5h5M8.5 16.5h3M7.5 12.5c-1.6-1-2.5-2.4-2.5-4.2a5 5 0 0 1 10 0c0 1.8-.9 3.2-2.5 4.2z",
  quick: "M11 3.5L5.5 11H10l-1 5.5L14.5 9H10z",
};

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  const path = document.createElementNS(SVG, "path");
  svg.setAttribute("viewBox", "0 0 20 20");
  svg.setAttribute("class", `icon icon-${name}`);
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

// A button that is only a drawing; its label is read out and shown on hover.
export function iconButton(name, label, onclick, props) {
  return h("button.icon-button", { type: "button", "aria-label": label, title: label, onclick, ...props }, icon(name));
}

// Copies a text, and says so on the button for a moment.
export async function copyFrom(button, text, done) {
  const drawing = button.querySelector("svg");
  await writeClipboard(text);
  if (drawing) drawing.replaceWith(icon("check"));
  button.classList.add("done");
  document.getElementById("status").textContent = done;
  setTimeout(() => {
    if (drawing) button.querySelector("svg").replaceWith(drawing);
    button.classList.remove("done");
  }, 1500);
}

async function writeClipboard(text) {
  if (navigator.clipboard && window.isSecureContext) {
    await navigator.clipboard.writeText(text);
    return;
  }
  // Without TLS on another host the browser offers only the old way.
  const area = h("textarea.hidden", { value: text });
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

export function download(name, kind, text) {
  const url = URL.createObjectURL(new Blob([text], { type: kind }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
