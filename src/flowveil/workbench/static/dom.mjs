/* Elements, and words for numbers. Text is set as text, never as markup: names of files and columns come from outside. */

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

/* The same whatever the order of names. */
/* What decides how a release comes out: not what it is called, nor the files it is written to. */
export const deciding = ({ title, source, period, licence, contact, formats, ...others }) => others;
export function same(a, b) {
  const plain = (x) => JSON.stringify(x, (_, v) => (v && typeof v === "object" && !Array.isArray(v) ? Object.fromEntries(Object.entries(v).sort()) : v));
  return plain(a) === plain(b);
}

/* The library speaks to whoever types: what the page has a field for is called by the name of the field. */
const FIELDS = [
  [/Hint: (person|trips|weight) names (one|it)\./g, "If there is one, choose it below."],
  [/Hint: say which with tile\./g, "Choose it below, under Columns of the map: Codes of zones."],
  [/Hint: name the columns: parent, or levels from coarsest to finest, or lat and lon\./g, "Name them below, under Columns of the map."],
  [/leave rows with unknown tiles out with skip_unknown \(--skip-unknown\)/g, "leave them out, under How rows are read"],
  [/\((--[a-z-]+)\)|\([a-z_]+=(True|\.\.\.)\)/g, ""],
  [/--population-only|population_only=True/g, "the confirmation under More"],
  [/--accept-differencing/g, "the tick under One matrix for each time or group"],
  [/--by-many|by_many=True/g, "the confirmation below Groups by"],
  [/--([a-z]+(-[a-z]+)*)/g, "$1"],
];
export const inWords = (text) => FIELDS.reduce((said, [found, words]) => said.replace(found, words), text ?? "");
