/* The search box: a combobox over names of zones, towns near them and codes. */

import { search, searchIndex } from "./model.mjs";
import { make } from "./panel.mjs";

const MOST_FOUND = 8;

export function mountSearch(model, place, found) {
  let index = null;
  /* Made when it is first needed: it takes a moment for many zones. */
  const find = (text) => {
    index ??= searchIndex(model);
    return search(model, index, text, MOST_FOUND);
  };
  const input = mountCombobox(
    find,
    place,
    (entry) => {
      input.value = entry.label;
      found(entry.zones, entry.label);
    },
    {
      id: "found-places",
      label: "Find a place by its name or code",
      none: "No zone is called so.",
    },
  );
  input.placeholder = "Find a place";
}

/* An input with the list of what was found: arrow keys, Enter and Escape, or a click. Returns the input. */
export function mountCombobox(find, place, picked, { id, label, none }) {
  const input = make("input", "", "", {
    type: "search",
    role: "combobox",
    "aria-label": label,
    "aria-expanded": "false",
    "aria-controls": id,
    "aria-autocomplete": "list",
    autocomplete: "off",
    spellcheck: "false",
  });
  const list = make("ul", "", "found", {
    id,
    role: "listbox",
    "aria-label": label,
  });
  const around = make("div", "", "search");
  let entries = [];
  let at = -1;
  const open = (is) => {
    list.hidden = !is;
    input.setAttribute("aria-expanded", is);
  };
  const pick = (i) => {
    const entry = entries[i];
    if (!entry) return;
    open(false);
    picked(entry);
  };
  const show = () => {
    entries = find(input.value).slice(0, MOST_FOUND);
    at = -1;
    input.removeAttribute("aria-activedescendant");
    list.textContent = "";
    entries.forEach((entry, i) => {
      const option = make("li", entry.label, "", {
        id: `${id}-${i}`,
        role: "option",
        "aria-selected": "false",
      });
      option.addEventListener("pointerdown", (e) => {
        e.preventDefault();
        pick(i);
      });
      list.append(option);
    });
    if (input.value.trim() && !entries.length)
      list.append(
        make("li", none, "soft", {
          role: "option",
          "aria-selected": "false",
          "aria-disabled": "true",
        }),
      );
    open(list.children.length > 0);
  };
  const mark = (i) => {
    at = (i + entries.length) % entries.length;
    [...list.children].forEach((option, n) =>
      option.setAttribute("aria-selected", n === at),
    );
    input.setAttribute("aria-activedescendant", `${id}-${at}`);
  };
  input.addEventListener("input", show);
  input.addEventListener("keydown", (e) => {
    if (e.key === "ArrowDown" && entries.length) mark(at + 1);
    else if (e.key === "ArrowUp" && entries.length) mark(at - 1);
    else if (e.key === "Enter") pick(Math.max(at, 0));
    else if (e.key === "Escape") {
      open(false);
      return;
    } else return;
    e.preventDefault();
  });
  input.addEventListener("blur", () => open(false));
  list.hidden = true;
  around.append(input, list);
  place.append(around);
  return input;
}
