/* Choices: values of the fields of the page, and of the session. What applies is decided by the server. */

import { $, $$, same } from "./dom.mjs";
import {
  isRequesting,
  onState,
  post,
  session,
  setProblem,
} from "./session.mjs";

/* Recognised roles of columns, shown where no choice was made. */
export const recognised = {};
/* Questions that the file asks, and a menu that was not answered. */
export const questions = { row: false };
const UNANSWERED = "?";
const EDGES = ["west", "south", "east", "north"];
const fields = () => $$("[data-choice]");
const methodOf = () => $("#method").value;

/* What a field is called in the list of those that do not apply: a unit of a list has its value. */
const namesOf = (field) =>
  field.dataset.kind === "list"
    ? [field.dataset.choice, `${field.dataset.choice}=${field.value}`]
    : [field.dataset.choice];
const isOff = (field) =>
  namesOf(field).some((name) => name in session.state.unavailable);

const READ = {
  person: (field) => (field.value === UNANSWERED ? null : field.value),
  row: (field) => (["", UNANSWERED].includes(field.value) ? null : field.value),
  number: (field) =>
    field.value === "" || field.dataset.unset ? null : +field.value,
  flag: (field) => field.checked || null,
  one: (field) => (field.value ? [field.value] : null),
  percent: (field) => (field.value === "" ? null : +field.value / 100),
  commas: (field) =>
    field.value
      .split(",")
      .map((one) => one.trim())
      .filter(Boolean),
};
const plain = (field) => (field.value === "" ? null : field.value);

const isEmpty = (name, value) =>
  value === null ||
  value === undefined ||
  (value === "" && name !== "person") ||
  (Array.isArray(value) && !value.length);

/* All choices, with the values of the fields and the given changes; null removes one. */
export function chosen(changes = {}) {
  const found = { ...session.state.choices };
  const lists = {};
  for (const field of fields()) {
    const name = field.dataset.choice;
    /* A menu of columns that is not filled yet is no answer: an empty person would mean that there is none. */
    if (field.tagName === "SELECT" && !field.options.length) continue;
    if (field.dataset.kind === "list") {
      lists[name] ??= [];
      if (field.checked && !isOff(field)) lists[name].push(field.value);
    } else
      found[name] = isOff(field)
        ? null
        : (READ[field.dataset.kind] ?? plain)(field);
  }
  const edges = EDGES.map((name) => $(`[data-area=${name}]`).value);
  found.within = edges.every((edge) => edge !== "") ? edges.join(",") : null;
  const given = $$(
    `.of-method[data-method="${methodOf()}"] [data-option]`,
  ).filter((field) => field.value !== "");
  found.options = given.length
    ? Object.fromEntries(
        given.map((field) => [field.dataset.option, field.value]),
      )
    : null;
  found.row_is_trip =
    (questions.row && $("[data-kind=row]").value === "") || null;
  if (!found.time) found.every = found.timezone = found.time_format = null;
  Object.assign(found, lists, changes);
  return Object.fromEntries(
    Object.entries(found).filter(([name, value]) => !isEmpty(name, value)),
  );
}

export async function keep(changes = {}) {
  const choices = chosen(changes);
  if (same(choices, session.state.choices)) setProblem("choices", "");
  else await post("/api/choices", choices, "choices");
  return choices;
}

/* An unset slider shows the default, so that its thumb and its label agree. */
function showRange(field, value) {
  if (value === undefined) field.dataset.unset = "1";
  else delete field.dataset.unset;
  field.value = value ?? field.dataset.default;
}

const SHOW = {
  list: (field, value) => {
    field.checked = (value ?? []).includes(field.value);
  },
  flag: (field, value) => {
    field.checked = value === true;
  },
  person: (field, value) => {
    field.value = value ?? UNANSWERED;
  },
  row: (field, value) => {
    const answered = session.state.choices.row_is_trip || !questions.row;
    field.value = value ?? (answered ? "" : UNANSWERED);
  },
  one: (field, value) => {
    field.value = value?.[0] ?? "";
  },
  percent: (field, value) => {
    field.value = value === undefined ? "" : +(100 * value).toFixed(6);
  },
  commas: (field, value) => {
    field.value = (value ?? []).join(", ");
  },
};

function show(choices) {
  for (const field of fields()) {
    if (field === document.activeElement && field.type !== "checkbox") continue;
    const value =
      choices[field.dataset.choice] ?? recognised[field.dataset.choice];
    if (field.type === "range") showRange(field, value);
    else if (SHOW[field.dataset.kind]) SHOW[field.dataset.kind](field, value);
    else field.value = value ?? "";
  }
  for (const field of $$("[data-option]")) {
    const own = field.closest(".of-method").dataset.method === choices.method;
    if (field !== document.activeElement)
      field.value = (own && choices.options?.[field.dataset.option]) || "";
  }
  if (!document.activeElement?.matches("[data-area]")) {
    const edges = (choices.within ?? "").split(",");
    EDGES.forEach((name, i) => {
      $(`[data-area=${name}]`).value =
        edges.length === EDGES.length ? edges[i] : "";
    });
  }
}

/* Hides the fields that do not apply, and groups without any. */
export function offer() {
  for (const field of fields())
    (field.closest("label") ?? field).hidden = isOff(field);
  for (const group of $$("fieldset.offered"))
    group.hidden = $$("[data-choice]", group).every(
      (field) => field.closest("label").hidden,
    );
  for (const set of $$(".of-method"))
    set.hidden = set.dataset.method !== methodOf();
}

let shown = null;
onState((state) => {
  offer();
  if (isRequesting() || same(shown, state.choices)) return;
  shown = state.choices;
  show(state.choices);
  offer();
  document.dispatchEvent(new CustomEvent("choices"));
});
/* Menus of columns are filled after the choices arrive. */
export const showChoices = () => {
  if (session.state) show(session.state.choices);
};
