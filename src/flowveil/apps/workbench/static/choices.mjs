/* Choices: values of the fields of the page, and of the session. */

import { $, $$, same } from "./dom.mjs";
import { isRequesting, onState, post, session, setProblem } from "./session.mjs";

/* Recognised roles of columns, shown where no choice was made. */
export const recognised = {};
const UNANSWERED = "?";
const fields = () => $$("[data-choice]");

/* Fields that do not apply have no value. */
const isOff = (field) => field.closest("[data-off][hidden], [data-off-without][hidden]") !== null;

function valueOf(field) {
  const kind = field.dataset.kind;
  if (isOff(field)) return null;
  if (kind === "person") return field.value === UNANSWERED ? null : field.value;
  if (kind === "number") return field.value === "" || field.dataset.unset ? null : +field.value;
  if (kind === "flag") return field.checked || null;
  if (kind === "one") return field.value ? [field.value] : null;
  if (kind === "percent") return field.value === "" ? null : +field.value / 100;
  if (kind === "commas") return field.value.split(",").map((one) => one.trim()).filter(Boolean);
  return field.value === "" ? null : field.value;
}

/* All choices, with the values of the fields and the given changes; null removes one. */
export function chosen(changes = {}) {
  const found = { ...session.state.choices };
  const lists = {};
  for (const field of fields()) {
    const name = field.dataset.choice;
    /* A menu of columns that is not filled yet is no answer: an empty person would mean that there is none. */
    if (field.tagName === "SELECT" && !field.options.length) continue;
    if (field.dataset.kind === "list") (lists[name] ||= []).push(...(field.checked && !isOff(field) ? [field.value] : []));
    else found[name] = valueOf(field);
  }
  const edges = ["west", "south", "east", "north"].map((n) => $(`[data-area=${n}]`).value);
  found.within = edges.every((e) => e !== "") ? edges.join(",") : null;
  const given = $$(`.of-method[data-method="${$("#method").value}"] [data-option]`).filter((field) => field.value !== "");
  found.options = given.length ? Object.fromEntries(given.map((field) => [field.dataset.option, field.value])) : null;
  if (!found.time) found.every = found.timezone = found.time_format = null;
  Object.assign(found, lists, changes);
  for (const [name, value] of Object.entries(found)) if (value === null || (value === "" && name !== "person") || (Array.isArray(value) && !value.length)) delete found[name];
  return found;
}

export async function keep(changes = {}) {
  const choices = chosen(changes);
  if (same(choices, session.state.choices)) setProblem("choices", ""); else await post("/api/choices", choices, "choices");
  return choices;
}

function show(choices) {
  for (const field of fields()) {
    if (field === document.activeElement && field.type !== "checkbox") continue;
    const name = field.dataset.choice, kind = field.dataset.kind, value = choices[name] ?? recognised[name];
    if (kind === "list") field.checked = (value ?? []).includes(field.value);
    else if (kind === "flag") field.checked = value === true;
    else if (kind === "person") field.value = value ?? UNANSWERED;
    else if (kind === "one") field.value = value?.[0] ?? "";
    else if (kind === "percent") field.value = value === undefined ? "" : +(100 * value).toFixed(6);
    else if (kind === "commas") field.value = (value ?? []).join(", ");
    /* An unset slider shows the default, so that its thumb and its label agree. */
    else if (field.type === "range") { if (value === undefined) { field.dataset.unset = "1"; field.value = field.dataset.default; } else { delete field.dataset.unset; field.value = value; } }
    else field.value = value ?? "";
  }
  for (const field of $$("[data-option]")) {
    const own = field.closest(".of-method").dataset.method === choices.method;
    if (field !== document.activeElement) field.value = (own && choices.options?.[field.dataset.option]) || "";
  }
  if (!document.activeElement?.dataset.area) {
    const edges = (choices.within ?? "").split(",");
    ["west", "south", "east", "north"].forEach((n, i) => { $(`[data-area=${n}]`).value = edges.length === 4 ? edges[i] : ""; });
  }
}

let shown = null;
onState((state) => {
  if (isRequesting() || same(shown, state.choices)) return;
  shown = state.choices;
  show(state.choices);
  document.dispatchEvent(new CustomEvent("choices"));
});
/* Menus of columns are filled after the choices arrive. */
export const showChoices = () => { if (session.state) show(session.state.choices); };
