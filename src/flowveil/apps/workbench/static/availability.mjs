/* Shows the fields that apply to the current choices. */

import { $, $$ } from "./dom.mjs";
import { session } from "./session.mjs";

/* Results of reading: whether people and weights are known. */
export const facts = { people: true, weight: true };

const value = (name) => { const field = $(`[data-choice=${name}]`); return field.type === "checkbox" ? field.checked : field.value; };
export const methodNow = () => $("#method").selectedOptions[0] ?? $("#method").options[0];
export const isNoisy = (name) => $$("#method option").some((option) => option.value === (name ?? "") && "noisy" in option.dataset);

const put = (selector, shown) => { for (const element of $$(selector)) element.hidden = !shown; };

export function offer() {
  const method = methodNow(), is = (name) => name in method.dataset, map = Boolean(session.state?.files.zones);
  put("[data-only=k]", !is("noisy"));
  put("[data-off=map]", !map);
  put("[data-off-without=people]", facts.people);
  put("[data-off-without=population]", facts.weight);
  put("[data-off=tree]", (is("tree") || is("recommended")) && !map);
  put("[data-off=same]", is("sameZones") || is("recommended"));
  put("[data-off=slices]", !is("noisy"));
  const time = !is("noisy") && value("time") !== "" && value("every") !== "", by = !is("noisy") && value("by") !== "";
  put("[data-off=time]", !is("noisy") && value("time") !== "");
  put("[data-off=fold]", time && (is("folds") || is("recommended")) && !by);
  const folded = time && (is("folds") || is("recommended")) && !by && value("fold_time");
  put("[data-off=by]", !folded);
  put("[data-off=many]", by);
  put("[data-off=common]", (time || by) && ["", "odkanon", "layercut"].includes(method.value) && !$$(".of-method:not([hidden]) [data-option]").some((field) => field.value !== ""));
  put("[data-off=dominance]", facts.people && !is("noisy") && !time && !by);
  const ticked = $$("[data-choice=protect]:checked").map((box) => box.value);
  put("[data-off=population_only]", facts.people && !is("noisy") && ticked.join() === "population");
  for (const set of $$(".of-method")) set.hidden = set.dataset.method !== method.value;
  $("#method-summary").textContent = is("recommended") && session.state ? session.state.defaults.method : method.dataset.summary.replace("; --option epsilon=1, no k", "");
}

/* Sets initial values of the options that noise requires. */
export function beginWith(name) {
  for (const field of $$("[data-option]")) {
    const own = field.closest(".of-method").dataset.method === name, start = field.dataset;
    field.value = own ? start.begin || (facts.people && start.beginPeople) || "" : "";
  }
}

/* Why these choices have no trade-off; empty if they have one. */
export function noFrontier(choices) {
  if (isNoisy(choices.method)) return "Methods that add noise suppress nothing, so they have no trade-off.";
  if (choices.fold_time) return "The trade-off is computed without joined times.";
  if (choices.same_zones) return "The trade-off is computed for separate zones at each end.";
  return "";
}
