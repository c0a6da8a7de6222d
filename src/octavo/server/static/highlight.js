// Colours for code: comments, strings, numbers, keywords and names that are called, by rules that
// most languages share. One pass over the text; what it does not know stays plain.

import { h } from "./dom.js";

const MOST_CHARACTERS = 60000;

const words = (text) => new Set(text.split(" "));
const C_LIKE = words(
  "abstract alignas as async auto await bool break byte case catch char class concept const constexpr continue " +
    "default delete do double dyn else enum explicit export extends extern false final finally float fn for foreach " +
    "friend from func fun function get goto if impl implements import in inline instanceof int interface internal is " +
    "let long loop mod module move mut mutable namespace new nil noexcept null nullptr of operator override " +
    "package private protected pub public readonly register return sealed self set short signed sizeof " +
    "static struct super switch template this throw throws trait true try type typedef typename typeof undefined " +
    "union unsafe unsigned use using val var virtual void volatile when where while with yield defer go chan",
);
const PYTHON = words(
  "False None True and as assert async await break class continue def del elif else except finally for from global " +
    "if import in is lambda match case nonlocal not or pass raise return self try while with yield",
);
const RUBY = words(
  "and begin break case class def do else elsif end ensure false for function if in local module next nil not or " +
    "redo repeat require rescue retry return self super then true undef unless until when while yield",
);
const SHELL = words(
  "if then else elif fi for in do done while until case esac function return exit export local set unset source echo cd sudo",
);
const SQL = words(
  "select from where and or not in is null as join left right inner outer full on group by order having limit offset " +
    "insert into values update set delete create table index view drop alter add primary key foreign references unique " +
    "distinct union all case when then else end exists between like asc desc with begin commit rollback default",
);
const NONE = new Set();

const STRING = '"(?:[^"\\\\\\n]|\\\\.)*"?|\'(?:[^\'\\\\\\n]|\\\\.)*\'?';
const TAIL = "(\\b\\d[\\w.]*)|([A-Za-z_$][\\w$]*)";
const rule = (comment, string, keywords) => ({
  pattern: new RegExp(`(${comment})|(${string})|${TAIL}`, "g"),
  keywords,
  isFolded: keywords === SQL,
});
const HASH = "#[^\\n]*";
const TRIPLE = '"""[\\s\\S]*?(?:"""|$)|\'\'\'[\\s\\S]*?(?:\'\'\'|$)';
const RULES = {
  c: rule("//[^\\n]*|/\\*[\\s\\S]*?(?:\\*/|$)", `${STRING}|\`(?:[^\`\\\\]|\\\\[\\s\\S])*\`?`, C_LIKE),
  python: rule(HASH, `${TRIPLE}|${STRING}`, PYTHON),
  ruby: rule(`${HASH}|--[^\\n]*`, STRING, RUBY),
  shell: rule(HASH, STRING, SHELL),
  sql: rule("--[^\\n]*|/\\*[\\s\\S]*?(?:\\*/|$)", STRING, SQL),
  data: rule(HASH, STRING, words("true false null yes no on off")),
  markup: rule("<!--[\\s\\S]*?(?:-->|$)", '"[^"\\n]*"', NONE),
  css: rule("/\\*[\\s\\S]*?(?:\\*/|$)", STRING, NONE),
};
const NAMES = {
  c: "c h cc cpp c++ cxx hpp cs csharp java js jsx javascript mjs ts tsx typescript go rust rs swift kotlin kt scala dart php cuda json5",
  python: "py python python3",
  ruby: "rb ruby lua julia jl elixir ex",
  shell: "sh bash zsh shell console powershell ps1 dockerfile make makefile",
  sql: "sql sqlite postgresql mysql",
  data: "json jsonc yaml yml toml ini",
  markup: "html xml svg vue",
  css: "css scss less",
};
const RULE_OF = new Map(Object.entries(NAMES).flatMap(([key, names]) => names.split(" ").map((name) => [name, RULES[key]])));

// Texts and coloured spans.
export function highlight(text, language) {
  const found = RULE_OF.get(language.toLowerCase());
  if (!found || text.length > MOST_CHARACTERS) return [text];
  const parts = [];
  let at = 0;
  for (const match of text.matchAll(found.pattern)) {
    const kind = kindOf(match, found);
    if (!kind) continue;
    if (match.index > at) parts.push(text.slice(at, match.index));
    parts.push(h(`span.hl-${kind}`, null, match[0]));
    at = match.index + match[0].length;
  }
  parts.push(text.slice(at));
  return parts;
}

function kindOf([all, comment, string, digits, word], { keywords, isFolded }) {
  if (!all) return null;
  if (comment) return "comment";
  if (string) return "string";
  if (digits) return "number";
  if (keywords.has(isFolded ? word.toLowerCase() : word)) return "keyword";
  return null;
}
