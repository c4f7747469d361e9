/* The search box: a combobox over names of zones, towns near them and codes. */

import { search, searchIndex } from "./model.mjs";
import { make } from "./panel.mjs";

const MOST_FOUND = 8;

export function mountSearch(model, place, found) {
  const input = make("input", "", "", { type: "search", role: "combobox", placeholder: "Find a place", "aria-label": "Find a place by its name or code", "aria-expanded": "false", "aria-controls": "found-places", "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false" });
  const list = make("ul", "", "found", { id: "found-places", role: "listbox", "aria-label": "Places found" }), around = make("div", "", "search");
  let index = null, entries = [], at = -1;
  const show = () => {
    /* Made when it is first needed: it takes a moment for many zones. */
    index ??= searchIndex(model);
    entries = search(model, index, input.value, MOST_FOUND);
    at = -1;
    list.textContent = "";
    entries.forEach((entry, i) => {
      const option = make("li", entry.label, "", { id: `found-${i}`, role: "option", "aria-selected": "false" });
      option.addEventListener("pointerdown", (e) => { e.preventDefault(); pick(i); });
      list.append(option);
    });
    if (input.value.trim() && !entries.length) list.append(make("li", "No zone is called so.", "soft", { role: "option", "aria-selected": "false", "aria-disabled": "true" }));
    open(list.children.length > 0);
  };
  const open = (is) => { list.hidden = !is; input.setAttribute("aria-expanded", is); };
  const pick = (i) => { const entry = entries[i]; if (!entry) return; input.value = entry.label; open(false); found(entry.zones, entry.label); };
  const mark = (i) => {
    at = (i + entries.length) % entries.length;
    [...list.children].forEach((option, n) => option.setAttribute("aria-selected", n === at));
    input.setAttribute("aria-activedescendant", `found-${at}`);
  };
  input.addEventListener("input", show);
  input.addEventListener("keydown", (e) => {
    if (e.key === "ArrowDown" && entries.length) mark(at + 1);
    else if (e.key === "ArrowUp" && entries.length) mark(at - 1);
    else if (e.key === "Enter") pick(Math.max(at, 0));
    else if (e.key === "Escape") { open(false); return; }
    else return;
    e.preventDefault();
  });
  input.addEventListener("blur", () => open(false));
  list.hidden = true;
  around.append(input, list);
  place.append(around);
}
