// Light, dark, or as the system has it.

import { recall, remember } from "./remember.js";

export const THEMES = ["system", "light", "dark"];

export const theme = () => (THEMES.includes(recall("theme")) ? recall("theme") : "system");

export function setTheme(name) {
  remember("theme", name);
  applyTheme();
}

export function applyTheme() {
  document.documentElement.dataset.theme = theme();
}

export function isDark() {
  if (theme() !== "system") return theme() === "dark";
  return window.matchMedia("(prefers-color-scheme: dark)").matches;
}
