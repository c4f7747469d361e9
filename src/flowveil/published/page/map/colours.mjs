/* Which colour each zone has, and the legend that says so. */

import { ENDS, valuesOf } from "./model.mjs";
import { CLASSES, cap, classOf, limitsOf, namesOf, spread } from "./scale.mjs";

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
export const paletteOf = () => Object.fromEntries(["ink", "paper", "soft", "line", "map", "outline", "grid", "hatch", "origin", "destination", "focus"].map((n) => [n, css(n)]));

/* For every layer in sight: its class limits, its colours and the class of each zone; -1 is what is not published. */
export function scaleOf(model, state, names) {
  const groups = {}, scale = { of: {}, shown: {} };
  for (const name of names) {
    const layer = model.layers[name];
    (groups[layer.scale || "main"] ||= []).push({ name, hue: layer.hue || layer.end || name, values: valuesOf(model, name, state), layer });
  }
  for (const [group, members] of Object.entries(groups)) {
    const byLevel = state.colour === "level" && !members[0].layer.values;
    /* With a selection the selected end keeps its totals, faded and on a scale of its own; the legend shows the other end's. */
    const aside = state.selected && !byLevel ? members.filter((m) => (m.layer.end || m.name) === state.selected.end && !m.layer.fixed) : [];
    const shown = members.filter((m) => !aside.includes(m));
    scale.shown[group] = shown;
    if (byLevel) {
      const levels = [...new Set(members.flatMap((m) => m.values.filter((v) => v !== null)))].sort((a, b) => a - b);
      const step = spread(levels.length, 8);
      for (const m of members) scale.of[m.name] = { levels, classOf: (v) => levels.indexOf(v), colours: levels.map((_, i) => css("level-" + (step[i] + 1))) };
    } else {
      for (const part of [shown, aside]) {
        const own = part.flatMap((m) => m.values);
        const limits = limitsOf(own);
        let high = 0, low = Infinity;
        for (const v of own) if (v > 0) { high = Math.max(high, v); low = Math.min(low, v); }
        const step = spread(limits.length + 1, CLASSES);
        for (const m of part) {
          const missing = m.layer.values ? (v) => !(v > 0) : (v) => v === null;
          scale.of[m.name] = { limits, low, high, faded: part === aside, classOf: (v) => (missing(v) ? -1 : classOf(limits, v)), colours: [...limits, 0].map((_, i) => css(m.hue + "-" + (step[i] + 1))) };
        }
      }
    }
    for (const m of members) {
      const s = scale.of[m.name];
      s.classes = m.values.map(s.classOf);
      s.paths = null;
    }
  }
  return scale;
}

export const UNIT = { trips: "trips", weight: "weight" };
const titleOf = (model, state) => {
  const filter = state.selected && state.colour !== "tiles" && state.colour !== "level" ? (state.selected.end === "origin" ? " from the selected zone" : " to the selected zone") : "";
  const unit = cap(UNIT[state.basis]) + (model.estimated ? " (estimated)" : "");
  return { volume: unit + filter, density: unit + " per km²" + filter, tiles: "Possible tiles in the zone", level: "Level (higher is finer)" }[state.colour];
};

/* A table: a row of colours for each hue, the names of the classes below; what is not published at the end. */
export function drawLegends(root, model, state, scale) {
  for (const place of root.querySelectorAll(".legend[data-scale]")) {
    const members = scale.shown[place.dataset.scale];
    if (!members || !members.length) continue;
    const s = scale.of[members[0].name];
    const heads = s.levels ? s.levels.map(String) : namesOf(s.limits, s.low, s.high);
    const rows = s.levels ? [members[0]] : members.filter((m, i) => members.findIndex((o) => o.hue === m.hue) === i);
    const unpublished = members.some((m) => !m.layer.values && scale.of[m.name].classes.some((c, i) => c === -1 && m.layer.x[i] !== null));
    const table = document.createElement("table");
    table.createCaption().textContent = members[0].layer.values ? members[0].layer.title : titleOf(model, state);
    for (const m of rows) {
      const tr = table.insertRow(), th = document.createElement("th");
      th.scope = "row"; th.textContent = s.levels ? "" : m.layer.label || (m.name === ENDS[0] ? "origins" : "destinations");
      tr.append(th);
      for (const colour of scale.of[m.name].colours) swatch(tr, (i) => { i.style.background = colour; });
      if (unpublished) swatch(tr, (i) => i.classList.add("hatched"));
    }
    const tr = table.insertRow();
    tr.insertCell();
    if (unpublished) heads.push("not published");
    for (const text of heads) {
      const td = tr.insertCell();
      for (const [kind, words] of [["long", text], ["brief", text.split(" – ")[0].replace(" or more", "+").replace("under ", "<").replace("not published", "no")]]) {
        const span = document.createElement("span");
        span.className = kind; span.textContent = words; td.append(span);
      }
    }
    place.textContent = "";
    place.append(table);
    if (unpublished) {
      const note = document.createElement("p");
      note.className = "missing"; note.textContent = `Not published (hatched): ${model.missing}.`;
      place.append(note);
    }
  }
}
const swatch = (row, paint) => { const i = document.createElement("span"); i.className = "swatch"; paint(i); row.insertCell().append(i); };
