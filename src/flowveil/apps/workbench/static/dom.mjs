/* Elements, and texts of numbers and messages. Text is set as text, never as markup: names come from outside. */

/** @returns {any} */
export const $ = (selector, root = document) => root.querySelector(selector);
/** @returns {any[]} */
export const $$ = (selector, root = document) => [
  ...root.querySelectorAll(selector),
];

/** @returns {any} */
export function make(tag, text = "", className = "", more = {}) {
  const element = document.createElement(tag);
  if (text !== "") element.textContent = text;
  if (className) element.className = className;
  for (const [name, value] of Object.entries(more))
    element.setAttribute(name, value);
  return element;
}

export function draw(tag, more = {}, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(more))
    element.setAttribute(name, String(value));
  if (text) element.textContent = text;
  return element;
}

export const fill = (element, ...children) =>
  element.replaceChildren(...children);
export const count = (n) => Math.round(n).toLocaleString("en-GB");
export const share = (n) =>
  (100 * n).toLocaleString("en-GB", { maximumFractionDigits: 1 }) + " %";
export function size(bytes) {
  if (bytes >= 1e9) return `${(bytes / 1e9).toFixed(1)} GB`;
  return bytes >= 1e6
    ? `${(bytes / 1e6).toFixed(1)} MB`
    : `${Math.ceil(bytes / 1e3)} kB`;
}

export function figuresInto(list, figures) {
  const boxes = figures.map((figure) => {
    const box = make("div");
    const value = make("dd", figure.value);
    value.append(make("small", figure.meaning));
    box.append(make("dt", figure.name), value);
    return box;
  });
  fill(list, ...boxes);
}

export function listOf(lines) {
  const list = make("ul");
  for (const line of lines) list.append(make("li", line));
  return list;
}

export function button(text, act, more = {}) {
  const element = make("button", text, "", { type: "button", ...more });
  element.addEventListener("click", () =>
    Promise.resolve(act()).catch(() => {}),
  );
  return element;
}

/* Compares without regard to the order of names. */
export function same(a, b) {
  const isObject = (value) =>
    value && typeof value === "object" && !Array.isArray(value);
  const sorted = (_, value) =>
    isObject(value) ? Object.fromEntries(Object.entries(value).sort()) : value;
  return JSON.stringify(a, sorted) === JSON.stringify(b, sorted);
}

/* Messages of the library name settings by flag or argument; the page names them by the label of their field. */
const SETTING =
  /--(?:set )?([a-z]+(?:[-.][a-z_]+)*)(?:[ =](?!is\b|or\b|and\b|for\b|with\b|are\b|was\b|needs?\b)('[^']*'|[\w/,.]*[A-Z/_,\d][\w/,.]*))?|\b([a-z]+(?:_[a-z]+)*)=('[^']*'|True|\.\.\.)/g;
/* "timezone (--timezone)" names one setting twice. */
const TWICE = /\b(?:[a-z_]+(?:, | and )?)+ \((--[a-z-]+(?:, --[a-z-]+)*)\)/g;
const settingName = (flag, argument) =>
  (argument ?? flag.split(".").at(-1))
    .replaceAll("-", "_")
    .replace(/^no_person$/, "person")
    .replace(/^format$/, "formats");
const choiceField = (name) =>
  $$("[data-choice]").find((field) => field.dataset.choice === name);

function labelOf(field) {
  const group = field.closest("fieldset");
  if (field.dataset.kind === "list" && group)
    return $("legend", group).textContent.trim();
  const texts = [...(field.closest("label")?.childNodes ?? [])].filter(
    (node) => node.nodeType === 3,
  );
  return texts
    .map((node) => node.textContent.trim())
    .join(" ")
    .trim();
}

/* The field that a message is about; undefined if the page has none. */
export function fieldOf(text) {
  for (const [, flag, , argument] of (text ?? "").matchAll(SETTING)) {
    const field = choiceField(settingName(flag, argument));
    if (field) return field;
  }
  return undefined;
}

export function pageWords(text) {
  return (text ?? "")
    .replace(TWICE, "$1")
    .replace(SETTING, (_, flag, value, argument, given) => {
      const name = settingName(flag, argument);
      const field = choiceField(name);
      if (flag === "no-person") return "‘No column does’";
      const label = field ? labelOf(field) : name.replaceAll("_", " ");
      const chosen = (value ?? given ?? "").replaceAll("'", "");
      return `‘${label}’${chosen && chosen !== "True" && chosen !== "..." ? `: ${chosen}` : ""}`;
    });
}
