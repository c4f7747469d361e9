/* Elements, and texts of numbers and messages. Text is set as text, never as markup: names come from outside. */

export const $ = (selector, root = document) => root.querySelector(selector);
export const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

export function make(tag, text = "", className = "", more = {}) {
  const element = document.createElement(tag);
  if (text !== "") element.textContent = text;
  if (className) element.className = className;
  for (const [name, value] of Object.entries(more)) element.setAttribute(name, value);
  return element;
}

export function draw(tag, more = {}, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(more)) element.setAttribute(name, value);
  if (text) element.textContent = text;
  return element;
}

export const fill = (element, ...children) => element.replaceChildren(...children);
export const count = (n) => Math.round(n).toLocaleString("en-GB");
export const share = (n) => (100 * n).toLocaleString("en-GB", { maximumFractionDigits: 1 }) + " %";
export const metres = (m) => (m < 1000 ? count(m) + " m" : (m / 1000).toLocaleString("en-GB", { maximumFractionDigits: 1 }) + " km");
export const size = (b) => (b >= 1e9 ? (b / 1e9).toFixed(1) + " GB" : b >= 1e6 ? (b / 1e6).toFixed(1) + " MB" : Math.ceil(b / 1e3) + " kB");

export function figuresInto(list, figures) {
  fill(list, ...figures.map((f) => {
    const box = make("div"), value = make("dd", f.value);
    value.append(make("small", f.meaning));
    box.append(make("dt", f.name), value);
    return box;
  }));
}

/* Choices that decide the cells: not the description and the formats of a release. */
export const cellChoices = ({ title, source, period, licence, contact, formats, ...others }) => {
  /* A time without a step makes no slices. */
  if (!others.every) for (const name of ["time", "timezone", "time_format"]) delete others[name];
  return others;
};
/* Compares without regard to the order of names. */
export function same(a, b) {
  const plain = (x) => JSON.stringify(x, (_, v) => (v && typeof v === "object" && !Array.isArray(v) ? Object.fromEntries(Object.entries(v).sort()) : v));
  return plain(a) === plain(b);
}

/* Messages of the library name settings by flag or argument; the page names them by the label of their field. */
const SETTING = /--(?:set )?([a-z]+(?:[-.][a-z_]+)*)(?:[ =](?!is\b|or\b|and\b|for\b|with\b|are\b|was\b|needs?\b)('[^']*'|[\w/,.]*[A-Z/_,\d][\w/,.]*))?|\b([a-z]+(?:_[a-z]+)*)=('[^']*'|True|\.\.\.)/g;
const settingName = (flag, argument) => (argument ?? flag.split(".").at(-1)).replaceAll("-", "_").replace(/^no_person$/, "person").replace(/^format$/, "formats");
const choiceField = (name) => $$("[data-choice]").find((field) => field.dataset.choice === name);

function labelOf(field) {
  const label = field.closest("label"), group = field.closest("fieldset");
  if (field.dataset.kind === "list" && group) return $("legend", group).textContent.trim();
  return [...(label?.childNodes ?? [])].filter((node) => node.nodeType === 3).map((node) => node.textContent.trim()).join(" ").trim();
}

/* The field that a message is about; undefined if the page has none. */
export function fieldOf(text) {
  for (const [, flag, , argument] of (text ?? "").matchAll(SETTING)) {
    const field = choiceField(settingName(flag, argument));
    if (field) return field;
  }
  return undefined;
}

/* "timezone (--timezone)" names one setting twice. */
const TWICE = /\b(?:[a-z_]+(?:, | and )?)+ \((--[a-z-]+(?:, --[a-z-]+)*)\)/g;

export const pageWords = (text) => (text ?? "").replace(TWICE, "$1").replace(SETTING, (found, flag, value, argument, given) => {
  const field = choiceField(settingName(flag, argument)), chosen = value ?? given;
  if (!field) return found;
  if (flag === "no-person") return "‘No column does’";
  return `‘${labelOf(field)}’${chosen && chosen !== "True" && chosen !== "..." ? `: ${chosen.replaceAll("'", "")}` : ""}`;
});
