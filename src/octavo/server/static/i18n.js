// The words of the page, in the reader's language. A language is one file of strings.

import { en } from "./en.js";
import { zh } from "./zh.js";
import { recall, remember } from "./remember.js";

export const LANGUAGES = { en: "English", zh: "中文" };
const TABLES = { en, zh };

let current = recall("language") || (navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");
if (!(current in TABLES)) current = "en";

export const language = () => current;

export function setLanguage(code) {
  current = code;
  remember("language", code);
  document.documentElement.lang = code === "zh" ? "zh-CN" : code;
}

// The text of a key; {name} is replaced by the value of that name. Numbers are written as the
// language has them.
export function t(key, values = {}) {
  const text = TABLES[current][key];
  return text.replace(/\{(\w+)\}/g, (_, name) => {
    const value = values[name];
    return typeof value === "number" ? number(value) : value;
  });
}

// The name of a key with the one that commands.
export const shortcut = (key) => (/Mac|iPhone|iPad/.test(navigator.platform) ? `⌘ ${key}` : `Ctrl ${key}`);

export const number = (value, digits = 0) =>
  new Intl.NumberFormat(current, { maximumFractionDigits: digits }).format(value);

// Bytes as people read them: three figures.
export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let step = 0;
  while (n >= 1000 && step < units.length - 1) {
    n /= 1024;
    step += 1;
  }
  return `${number(n, n < 10 && step ? 2 : n < 100 && step ? 1 : 0)} ${units[step]}`;
}

export function seconds(value) {
  if (value < 10) return t("seconds", { n: number(value, value < 1 ? 2 : 1) });
  if (value < 60) return t("seconds", { n: number(Math.round(value)) });
  return t("minutes", { m: Math.floor(value / 60), s: Math.floor(value % 60) });
}
