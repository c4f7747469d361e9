/* What can be chosen now: the page offers nothing that fails. */

import { $, $$ } from "./dom.mjs";
import { desk } from "./desk.mjs";

/* What reading the trips has found: whether people and weights are known, and where noise could be drawn. */
export const facts = { people: true, weight: true, region: {} };

const value = (name) => { const field = $(`[data-choice=${name}]`); return field.type === "checkbox" ? field.checked : field.value; };
export const methodNow = () => $("#method").selectedOptions[0] ?? $("#method").options[0];
export const isNoisy = (name) => $$("#method option").some((option) => option.value === (name ?? "twincut") && "noisy" in option.dataset);

const put = (selector, shown) => { for (const element of $$(selector)) element.hidden = !shown; };

export function offer() {
  const method = methodNow(), is = (name) => name in method.dataset, map = Boolean(desk.state?.files.zones);
  put("[data-only=k]", !is("noisy"));
  put("[data-off=map]", !map);
  put("[data-off-without=people]", facts.people);
  put("[data-off-without=population]", facts.weight);
  put("[data-off=tree]", is("tree") && !map);
  put("[data-off=same]", is("sameZones"));
  put("[data-off=slices]", !is("noisy"));
  const time = !is("noisy") && value("time") !== "", by = !is("noisy") && value("by") !== "";
  put("[data-off=time]", time);
  put("[data-off=fold]", time && is("folds") && !by);
  const folded = time && is("folds") && !by && value("fold_time");
  put("[data-off=by]", !folded);
  put("[data-off=many]", by);
  put("[data-off=several]", (time || by) && !folded);
  put("[data-off=common]", (time || by) && method.value === "odkanon" && !$$(".of-method:not([hidden]) [data-option]").some((field) => field.value !== ""));
  put("[data-off=dominance]", facts.people && !is("noisy") && !time && !by);
  const ticked = $$("[data-choice=protect]:checked").map((box) => box.value);
  put("[data-off=population_only]", facts.people && !is("noisy") && ticked.join() === "population");
  for (const set of $$(".of-method")) set.hidden = set.dataset.method !== method.value;
  $("#method-said").textContent = method.dataset.said.replace("; --option epsilon=1, no k", "");
}

/* Noise must be told how much, for whom and where: a beginning that runs, for whoever has not thought about it yet. */
export function beginWith(name) {
  for (const field of $$("[data-option]")) {
    const own = field.closest(".of-method").dataset.method === name, start = field.dataset;
    field.value = own ? start.begin || (facts.people && start.beginPeople) || (isNoisy(name) && facts.region[start.option]) || "" : "";
  }
}

/* Why there is no trade-off for these choices; empty where there is one. */
export function noFrontier(choices) {
  if (isNoisy(choices.method)) return "A method that adds noise suppresses nothing, so there is no such trade-off.";
  if (choices.fold_time) return "The trade-off is computed for places, without times that are put together.";
  if (choices.same_zones) return "The trade-off is computed where each end has zones of its own.";
  return "";
}
