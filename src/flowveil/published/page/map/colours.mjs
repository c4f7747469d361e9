/* Which colour each area has, and the legend that says so. */

import { CLASSES, classOf, limitsOf, namesOf, spread } from "./scale.mjs";

const css = (name) =>
  getComputedStyle(document.documentElement)
    .getPropertyValue("--" + name)
    .trim();
export const paletteOf = () =>
  Object.fromEntries(
    ["ink", "soft", "map", "outline", "focus"].map((n) => [n, css(n)]),
  );

/* For every layer in sight: its class limits, its colours and the class of each area; -1 is an area without a value.
   Layers of one group share their limits. */
export function scaleOf(layers, names) {
  const groups = {};
  const scale = { of: {}, shown: {} };
  for (const name of names) (groups[layers[name].scale] ||= []).push(name);
  for (const [group, members] of Object.entries(groups)) {
    const values = members.flatMap((name) => layers[name].values);
    const limits = limitsOf(values);
    const step = spread(limits.length + 1, CLASSES);
    let high = 0;
    let low = Infinity;
    for (const v of values)
      if (v > 0) {
        high = Math.max(high, v);
        low = Math.min(low, v);
      }
    scale.shown[group] = members;
    for (const name of members) {
      const colours = [...limits, 0].map((_, i) =>
        css(`${layers[name].hue}-${step[i] + 1}`),
      );
      scale.of[name] = {
        limits,
        low,
        high,
        colours,
        classes: layers[name].values.map((v) =>
          v > 0 ? classOf(limits, v) : -1,
        ),
        paths: null,
      };
    }
  }
  return scale;
}

/* A table: a row of colours for each hue, the names of the classes below. */
export function drawLegends(root, layers, scale) {
  for (const place of root.querySelectorAll(".legend[data-scale]")) {
    const members = scale.shown[place.dataset.scale];
    if (!members) continue;
    const first = scale.of[members[0]];
    const table = document.createElement("table");
    table.createCaption().textContent = layers[members[0]].title;
    for (const name of members.filter(
      (name, i) =>
        members.findIndex((other) => layers[other].hue === layers[name].hue) ===
        i,
    )) {
      const tr = table.insertRow();
      const th = document.createElement("th");
      th.scope = "row";
      th.textContent = layers[name].label;
      tr.append(th);
      for (const colour of scale.of[name].colours) swatch(tr, colour);
    }
    const tr = table.insertRow();
    tr.insertCell();
    for (const text of namesOf(first.limits, first.low, first.high)) {
      const td = tr.insertCell();
      for (const [kind, words] of [
        ["long", text],
        [
          "brief",
          text.split(" – ")[0].replace(" or more", "+").replace("under ", "<"),
        ],
      ]) {
        const span = document.createElement("span");
        span.className = kind;
        span.textContent = words;
        td.append(span);
      }
    }
    place.replaceChildren(table);
  }
}
function swatch(row, colour) {
  const i = document.createElement("span");
  i.className = "swatch";
  i.style.background = colour;
  row.insertCell().append(i);
}
