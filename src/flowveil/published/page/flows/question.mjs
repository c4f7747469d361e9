/* The question of a reader as one state: the sentence, clicks, the keyboard and the link all change it.

   `way` is from, to or between; `a` and `b` are choices of areas with a label, or null; `hour` is a label of time or null. */

import { maskOf } from "./estimate.mjs";
import { fold } from "./model.mjs";
import { button, make } from "./panel.mjs";
import { findPlaces } from "./estimate.mjs";
import { mountCombobox } from "./search.mjs";

export const NOTHING = {
  way: "from",
  a: null,
  b: null,
  hour: null,
  each: false,
};

/* A place by its number, or areas of their own. */
export function placeChoice(model, place) {
  const areas = [];
  for (let i = 0; i < model.n; i++) if (model.place[i] === place) areas.push(i);
  return {
    label: model.name[place],
    place,
    areas,
    mask: maskOf(model, areas),
    keys: [model.name[place]],
  };
}
export function areasChoice(world, areas) {
  const { model } = world;
  const sorted = [...areas].sort((a, b) => a - b);
  if (!sorted.length) return null;
  const places = [...new Set(sorted.map((area) => model.place[area]))];
  if (places.length === 1) {
    const whole = placeChoice(model, places[0]);
    if (whole.areas.length === sorted.length) return whole;
  }
  const label =
    places.length === 1
      ? world.t("part_of", { place: model.name[places[0]] })
      : world.t("areas_of", { n: sorted.length, place: model.name[places[0]] });
  return {
    label,
    place: null,
    areas: sorted,
    mask: maskOf(model, sorted),
    keys: sorted.map((area) => model.code[area]),
  };
}

/* The sets of the origins and the destinations; with `between`, of one direction. */
export function queryOf({ way, a, b, hour }) {
  const mine = a?.mask ?? null;
  const other = b?.mask ?? null;
  return way === "to"
    ? { from: other, to: mine, hour }
    : { from: mine, to: other, hour };
}

/* ---- the link ---- */

export function hashOf(state) {
  const words = new URLSearchParams();
  for (const key of state.a?.keys ?? []) words.append(state.way, key);
  for (const key of state.b?.keys ?? [])
    words.append(
      state.way === "from" ? "to" : state.way === "to" ? "from" : "and",
      key,
    );
  if (state.hour !== null) words.set("hour", state.hour);
  return words.toString();
}
export function stateOf(world, hash) {
  const { model } = world;
  const words = new URLSearchParams(hash.replace(/^#/, ""));
  const state = { ...NOTHING };
  const choice = (keys) => {
    const areas = new Set();
    for (const key of keys) {
      const wanted = fold(key);
      const place = model.name.findIndex((name) => fold(name) === wanted);
      const area = model.code.indexOf(key);
      if (place >= 0)
        for (const one of placeChoice(model, place).areas) areas.add(one);
      else if (area >= 0) areas.add(area);
    }
    return areasChoice(world, areas);
  };
  const from = words.getAll("from");
  const to = words.getAll("to");
  const between = words.getAll("between");
  if (between.length) {
    state.way = "between";
    state.a = choice(between);
    state.b = choice(words.getAll("and"));
  } else if (from.length) {
    state.a = choice(from);
    state.b = choice(to);
  } else if (to.length) {
    state.way = "to";
    state.a = choice(to);
  }
  if (!state.a) {
    state.a = state.b;
    state.b = null;
  }
  const hour = words.get("hour");
  const padded = hour === null ? null : hour.padStart(2, "0");
  if (padded !== null)
    state.hour =
      model.times.find(
        (label) => label === hour || label.startsWith(`${padded}:`),
      ) ?? null;
  return state;
}

/* ---- the sentence ---- */

export function mountSentence(world, place, changed) {
  const { t, model } = world;
  const sentence = make("form", "", "sentence", {
    "aria-label": t("question"),
  });
  sentence.addEventListener("submit", (e) => e.preventDefault());
  const way = make("select", "", "", { "aria-label": t("direction") });
  for (const name of ["from", "to", "between"])
    way.append(make("option", t(name), "", { value: name }));
  way.addEventListener("change", () =>
    changed({ way: way.value, b: world.state.b }),
  );
  const hour = make("select", "", "", { "aria-label": t("hour") });
  hour.append(
    make("option", t("all_day"), "", { value: "" }),
    ...model.times.map((label, i) =>
      make("option", label, "", { value: String(i) }),
    ),
  );
  hour.addEventListener("change", () =>
    changed({ hour: hour.value === "" ? null : model.times[+hour.value] }),
  );
  const first = make("span", "", "blank");
  const second = make("span", "", "blank");
  const words = [make("span"), make("span"), make("span")];
  const boxes = [
    ["a", first],
    ["b", second],
  ].map(([name, around]) => {
    const chip = button(
      "",
      () =>
        changed({
          [name]: null,
          ...(name === "a" ? { a: world.state.b, b: null } : {}),
        }),
      "chip",
    );
    const box = make("span");
    const pick = (entry) =>
      changed({
        [name]: entry.areas
          ? areasChoice(world, entry.areas)
          : placeChoice(model, entry.place),
      });
    const input = mountCombobox(
      (text) => findPlaces(world, text, fold),
      box,
      pick,
      {
        id: `places-${name}`,
        label: t(name === "a" ? "find_place" : "find_second"),
        none: t("no_place"),
      },
    );
    around.append(chip, box);
    return { name, chip, box, input };
  });
  sentence.append(
    words[0],
    way,
    first,
    words[1],
    second,
    words[2],
    ...(model.times.length ? [hour] : []),
    make("span", "?"),
  );
  place.append(sentence);
  return () => {
    const { state } = world;
    const [before, , after] = t(
      state.way === "to" ? "sentence_to" : "sentence_from",
    ).split("|");
    words[0].textContent = before;
    words[2].textContent = after;
    words[1].textContent = state.a
      ? t(state.way === "from" ? "to" : state.way === "to" ? "from" : "and")
      : "";
    way.value = state.way;
    hour.value =
      state.hour === null ? "" : String(model.times.indexOf(state.hour));
    second.hidden = !state.a;
    for (const { name, chip, box, input } of boxes) {
      const chosen = state[name];
      chip.hidden = !chosen;
      box.hidden = Boolean(chosen);
      chip.textContent = chosen ? `${chosen.label} ×` : "";
      if (chosen)
        chip.setAttribute("aria-label", t("remove", { place: chosen.label }));
      input.placeholder = t(name === "a" ? "click_or_type" : "any_place");
      if (!chosen) input.value = "";
    }
  };
}
