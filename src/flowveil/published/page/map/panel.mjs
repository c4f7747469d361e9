/* What is said beside the maps: the chosen zone with its largest partners, the chosen flow, the zones that hold a place. */

import { UNIT } from "./colours.mjs";
import { OTHER, calledOf, holdsAll, missingWith, nameOf, partnersOf, volumesOf, zonesHolding } from "./model.mjs";
import { degreesOf } from "./geometry.mjs";
import { exact } from "./scale.mjs";

const MOST = 10;
const WORD = { origin: "start", destination: "end" };

export const make = (tag, words = "", kind = "") => { const e = document.createElement(tag); e.textContent = words; if (kind) e.className = kind; return e; };
/* An estimate has no decimals. */
export const amount = (model, v) => (model.estimated && v !== null ? (v > 0 && v < 1 ? "less than 1" : exact(Math.round(v))) : exact(v));
export const volumeText = (model, basis, v) => {
  const said = amount(model, v), about = (model.estimated && v >= 1 ? "about " : "") + said;
  return basis === "trips" ? `${about} ${said === "1" || said === "less than 1" ? "trip" : "trips"}` : "weight " + about;
};

/* A zone in lines, as a tooltip has them: name, code, volumes, size. */
export function describe(model, state, name, zone) {
  const layer = model.layers[name], end = layer.end || name, { selected } = state;
  const called = calledOf(model, layer, zone);
  const lines = [...(called ? [called] : []), layer.code[zone]];
  if (layer.values) { lines.push(exact(layer.values[zone]) + " " + (layer.word || "")); return lines; }
  if (selected && selected.end !== end && !layer.fixed) {
    const v = volumesOf(model, name, state.basis, selected)[zone];
    const way = (end === "destination" ? " from " : " to ") + "the selected zone";
    lines.push(v === null ? `Trips${way}: ${missingWith(model, selected)}` : volumeText(model, state.basis, v) + way);
  }
  /* Where zones overlap, trips of the same place may be counted in another zone. */
  const counted = model.homogeneous ? WORD[end] + " here" : `are counted in this ${model.boxes ? "box" : "zone"}`;
  for (const b of model.data.bases) {
    if (!layer[b]) continue;
    const v = volumesOf(model, name, b, null)[zone];
    lines.push(v === null ? `${b === "trips" ? `Trips that ${counted}` : "Weight"}: ${model.missing}` : b === "trips" ? `${volumeText(model, b, v)} ${counted}` : volumeText(model, b, v));
  }
  const tiles = layer.tiles[zone] === null ? "" : layer.tiles[zone] === 1 ? "1 tile" : exact(layer.tiles[zone]) + " possible tiles";
  lines.push([tiles, layer.area[zone] === null ? "" : exact(layer.area[zone]) + " km²", model.boxes || layer.level[zone] === null ? "" : "level " + layer.level[zone]].filter(Boolean).join(", "));
  return lines;
}

export const describeFlow = (model, i) => [
  `${nameOf(model, "origin", model.flows.origin[i])} → ${nameOf(model, "destination", model.flows.destination[i])}`,
  ...model.data.bases.map((b) => volumeText(model, b, model.flows[b][i])),
];

/* The way back is between the same two places, if both are zones of the other end. */
export function wayBack(model, i) {
  const { origin, destination } = model.layers;
  const from = origin.code.indexOf(destination.code[model.flows.destination[i]]), to = destination.code.indexOf(origin.code[model.flows.origin[i]]);
  if (from < 0 || to < 0 || model.within[i]) return undefined;
  const flow = model.flows.origin.findIndex((o, j) => o === from && model.flows.destination[j] === to);
  return { flow, words: flow >= 0 ? null : missingWith(model, { end: "origin", zone: from }) };
}

/* The same words as `nameOf`, codes set as such. */
export const labelled = (model, end, zone) => {
  const layer = model.layers[end], name = calledOf(model, layer, zone), code = layer.code[zone];
  return name ? [`${name} `, make("span", `(${code})`, "code")] : [make("span", code, "code alone")];
};
export const flowNamed = (model, i) => [...labelled(model, "origin", model.flows.origin[i]), " → ", ...labelled(model, "destination", model.flows.destination[i])];

const barOf = (model, volume) => ({ volume, amount: amount(model, volume) });
const bars = (entries) => {
  const list = make("ol", "", "bars"), most = entries.reduce((m, e) => Math.max(m, e.volume), 0) || 1;
  for (const e of entries) {
    const item = make("li"), button = make("button", "", "zone"), bar = make("span", "", "bar"), fill = make("i");
    button.append(...e.name);
    button.type = "button"; button.title = button.textContent; button.addEventListener("click", e.act);
    fill.style.width = `${Math.max(1, (100 * Math.max(e.volume, 0)) / most)}%`; fill.style.background = `var(--${e.hue})`;
    bar.append(fill);
    item.append(button, make("span", e.amount, "number"), bar);
    list.append(item);
  }
  return list;
};

export function fillPanel(world, box, act) {
  const { model, state } = world;
  box.textContent = "";
  box.classList.toggle("chosen", Boolean(state.selected) || state.flow !== null || Boolean(state.place));
  if (state.flow !== null) tellFlow(world, box, act);
  else if (state.selected) tellZone(world, box, act);
  else if (!state.place) {
    box.append(make("p", "Click a zone or a flow on a map, choose one in a table, or type a zone's code above: the maps then show where its trips go or come from.", "soft"));
    const largest = model.rank[state.basis].slice(0, MOST);
    if (largest.length) {
      box.append(make("h3", largest.length < MOST ? "The largest flows" : `The ${MOST} largest flows`));
      box.append(bars(largest.map((i) => ({ name: flowNamed(model, i), ...barOf(model, model.flows[state.basis][i]), hue: "bar", act: () => act.flow(i) }))));
    }
  }
  if (state.place && world.published) tellPlace(world, box, act);
  if (box.classList.contains("chosen")) {
    const close = make("button", "×", "close");
    close.type = "button"; close.setAttribute("aria-label", "Clear selection"); close.addEventListener("click", act.clear);
    box.prepend(close);
  }
}

function tellZone({ model, state }, box, act) {
  const { end, zone } = state.selected, other = OTHER[end], layer = model.layers[end];
  const lines = describe(model, state, end, zone), named = lines[0] !== layer.code[zone];
  const head = make("p");
  head.append(make("strong", (end === "origin" ? "Origin" : "Destination") + ` ${model.word} ` + (named ? lines[0] + " " : "")), make("code", layer.code[zone]), ": " + lines.slice(named ? 2 : 1).join("; ") + ".");
  const partners = partnersOf(model, state.selected, state.basis), cells = layer.cells[zone];
  const held = holdsAll(model, state.selected) ? "" : ` The page holds ${exact(partners.length)} of its ${exact(cells)} cells, the largest.`;
  let more = `Its trips ${end === "origin" ? "go to" : "come from"} ${exact(cells)} ${other} ${model.word}${cells === 1 ? "" : "s"}${model.estimated ? " (estimated)" : ""}; for all others: ${model.missing}.${held}`;
  if (layer.x[zone] !== null) {
    /* No more digits than the page's units have. */
    const { frame } = model.data, digits = Math.max(0, Math.min(4, Math.floor(-Math.log10(360 * frame.perUnit))));
    more += ` Centre: ${degreesOf(frame, layer.x[zone], layer.y[zone]).map((v) => v.toFixed(digits)).join(", ")}.`;
  }
  box.append(head);
  if (partners.length) {
    const n = Math.min(MOST, partners.length);
    box.append(make("h3", `${end === "origin" ? "Where its trips go" : "Where its trips come from"}: the ${n === 1 ? "largest" : `${n} largest`}, ${UNIT[state.basis]}`));
    box.append(bars(partners.slice(0, MOST).map((p) => ({ name: labelled(model, other, p.zone), ...barOf(model, p.volume), hue: other, act: () => act.flow(p.flow) }))));
  }
  box.append(make("p", more, "soft"));
}

function tellFlow({ model, state }, box, act) {
  const i = state.flow, head = make("p", "", "pair");
  for (const [end, word] of [["origin", "From "], ["destination", " to "]]) {
    const button = make("button", "", "zone");
    button.append(...labelled(model, end, model.flows[end][i]));
    button.type = "button"; button.addEventListener("click", () => act.zone(end, model.flows[end][i]));
    head.append(word, button);
  }
  box.append(make("h3", model.within[i] ? `Flow inside one ${model.word}` : "Flow"), head);
  box.append(make("p", model.data.bases.map((b) => volumeText(model, b, model.flows[b][i])).join("; ") + ".", "amount"));
  const back = wayBack(model, i);
  if (back) {
    const p = make("p", "The way back: ");
    if (back.flow >= 0) {
      const button = make("button", volumeText(model, state.basis, model.flows[state.basis][back.flow]), "zone");
      button.type = "button"; button.addEventListener("click", () => act.flow(back.flow));
      p.append(button, ".");
    } else p.append(back.words + ".");
    box.append(p);
  }
  if (model.times) box.append(strip(model, i));
}

/* When a pair is published: the darker, the more trips an hour. */
function strip(model, i) {
  const { times } = model, pieces = times.of[i] || [], place = make("figure", "", "strip"), day = make("div", "", "day");
  const whole = times.to - times.from, most = pieces.reduce((m, [from, to, trips]) => Math.max(m, trips / (to - from)), 0) || 1;
  const words = pieces.map(([, , trips, label]) => `${label}: ${amount(model, trips)} trips`);
  pieces.forEach(([from, to, trips], n) => {
    const bar = make("i");
    bar.style.left = `${(100 * (from - times.from)) / whole}%`; bar.style.width = `${(100 * (to - from)) / whole}%`;
    bar.style.opacity = 0.2 + (0.8 * trips) / (to - from) / most;
    bar.title = words[n];
    day.append(bar);
  });
  day.setAttribute("role", "img");
  day.setAttribute("aria-label", "When trips of this pair are published: " + (words.join("; ") || "not known on this page"));
  const ends = make("p", "", "ends");
  ends.append(make("span", times.ends[0]), make("span", times.ends[1]));
  place.append(make("figcaption", "When: the darker, the more trips an hour. Empty: in larger zones or wider intervals, none, or too few."), day, ends, make("p", words.join("; ") + (words.length ? "." : ""), "soft"));
  return place;
}

/* Zones that hold a place overlap where a release is nested: its cells are found in all of them. */
function tellPlace({ state, published }, box, act) {
  box.append(make("h3", "Published zones that hold this place, from fine to coarse"));
  for (const end of ["origin", "destination"]) {
    const layer = published.layers[end], found = zonesHolding(published, end, state.place.x, state.place.y);
    box.append(make("p", end === "origin" ? "As origins" : "As destinations", "soft"));
    if (!found.length) { box.append(make("p", `no zone: ${published.missing}.`)); continue; }
    box.append(bars(found.map((zone) => ({
      name: [...labelled(published, end, zone), `: ${exact(layer.area[zone])} km², ${exact(layer.cells[zone])} cell${layer.cells[zone] === 1 ? "" : "s"}`],
      ...barOf(published, layer[state.basis][zone]), hue: end, act: () => act.published(end, zone),
    }))));
  }
}
