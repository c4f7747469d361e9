/* The panel of a chosen place, the tooltip, and the table of numbers. */

import { clusterLabel, exact, labelOf } from "./model.mjs";

const MOST = 8;

export const make = (tag, words = "", kind = "", attributes = {}) => {
  const e = document.createElement(tag);
  e.textContent = words;
  if (kind) e.className = kind;
  for (const [name, value] of Object.entries(attributes))
    e.setAttribute(name, value);
  return e;
};
export const button = (words, act, kind = "") => {
  const b = make("button", words, kind, { type: "button" });
  b.addEventListener("click", act);
  return b;
};

/* What is counted: trips, weight, or trips an hour where one hour of longer intervals is shown. */
export function unitOf(world) {
  const { state, model } = world;
  const counted = state.basis === "trips" ? "trips" : "weight";
  return model.data.times && state.hour !== null
    ? `${counted} per hour`
    : counted;
}

/* What is chosen: zones with a name. The mask marks them among all zones. */
let chosenSoFar = 0;
export function choose(model, zones, label) {
  const mask = new Uint8Array(model.code.length);
  for (const zone of zones) mask[zone] = 1;
  return { id: ++chosenSoFar, zones, mask, label };
}

function totalsOf(world) {
  const { model, state } = world;
  const { mask } = state.chosen;
  const volumes = world.volumes.of;
  const found = { starts: 0, ends: 0, stays: 0 };
  for (let i = 0; i < volumes.length; i++) {
    const o = mask[model.origin[i]];
    const d = mask[model.destination[i]];
    if (o) found.starts += volumes[i];
    if (d) found.ends += volumes[i];
    if (o && d) found.stays += volumes[i];
  }
  return found;
}

export function fillPanel(world, box, act) {
  const { model, state } = world;
  box.textContent = "";
  box.hidden = !state.chosen;
  if (!state.chosen) return;
  const { level, sums } = world.scene;
  const { zones, label } = state.chosen;
  const { starts, ends, stays } = totalsOf(world);
  const unit = unitOf(world);
  const own = new Set(zones.map((zone) => level.of[zone]));
  const close = button("×", act.clear, "close");
  close.setAttribute("aria-label", "Clear selection");
  box.append(close, make("h3", label));
  const counted = model.data.homogeneous
    ? ["start here", "end here"]
    : ["start in zones centred here", "end there"];
  box.append(
    make(
      "p",
      `${exact(starts)} ${unit} ${counted[0]}, ${exact(ends)} ${counted[1]}${stays ? `; ${exact(stays)} do both` : ""}.`,
    ),
  );
  const partners = (mine, other) =>
    [...sums.order]
      .filter((i) => own.has(sums[mine][i]) && !own.has(sums[other][i]))
      .slice(0, MOST)
      .map((i) => ({ cluster: sums[other][i], volume: sums.sum[i] }));
  for (const [heading, mine, other] of [
    ["Where trips from here go", "from", "to"],
    ["Where trips to here come from", "to", "from"],
  ]) {
    const listed = partners(mine, other);
    if (!listed.length) continue;
    box.append(
      make("h4", heading),
      bars(
        listed.map(({ cluster, volume }) => ({
          label: clusterLabel(model, level, cluster),
          volume,
          act: () => act.cluster(level, cluster),
        })),
      ),
    );
  }
  box.append(
    make(
      "p",
      `${sizesOf(model, zones)} Pairs that are not listed: ${model.data.words.missing}.`,
      "soft",
    ),
  );
}

function sizesOf(model, zones) {
  const known = zones
    .map((zone) => model.area[zone])
    .filter((area) => area >= 0);
  if (!known.length)
    return zones.length === 1 ? "" : `${exact(zones.length)} zones.`;
  const low = known.reduce((a, b) => Math.min(a, b));
  const high = known.reduce((a, b) => Math.max(a, b));
  const km2 = (v) => (v < 10 ? +v.toPrecision(2) : exact(v));
  const overlap = model.data.homogeneous
    ? ""
    : " Zones overlap: trips of this place may also be counted in larger zones.";
  return zones.length === 1
    ? `A zone of ${km2(low)} km².${overlap}`
    : `${exact(zones.length)} zones of ${low === high ? km2(low) : `${km2(low)} to ${km2(high)}`} km².${overlap}`;
}

function bars(entries) {
  const list = make("ol", "", "bars");
  const most = entries.reduce((m, e) => Math.max(m, e.volume), 0) || 1;
  for (const { label, volume, act } of entries) {
    const item = make("li");
    const bar = make("span", "", "part");
    const fill = make("i");
    fill.style.width = `${Math.max(1, (100 * Math.max(volume, 0)) / most)}%`;
    bar.append(fill);
    item.append(
      button(label, act, "link"),
      make("span", exact(volume), "number"),
      bar,
    );
    list.append(item);
  }
  return list;
}

/* What a pointer shows. */
export function tipLines(world, hover) {
  const { model, scene } = world;
  const { sums, level } = scene;
  const unit = unitOf(world);
  if (hover.flow !== undefined) {
    return [
      `${clusterLabel(model, level, sums.from[hover.flow])} → ${clusterLabel(model, level, sums.to[hover.flow])}`,
      `${exact(sums.sum[hover.flow])} ${unit}`,
    ];
  }
  const c = hover.cluster;
  const zones = level.of.reduce((n, own) => n + (own === c), 0);
  return [
    clusterLabel(model, level, c),
    `${exact(sums.starts[c])} ${unit} start, ${exact(sums.ends[c])} end`,
    ...(sums.inside[c] ? [`${exact(sums.inside[c])} stay inside`] : []),
    zones > 1
      ? `${exact(zones)} zones together: zoom in to see each`
      : sizesOf(model, [level.main[c]]),
  ];
}

/* ---- the same numbers as a table ---- */

const ROWS = 50;

/* The cells that are shown, the largest first: of the chosen place, of the hour or slice, with the text. */
export function shownCells(world, text, fold) {
  const { model, state } = world;
  const volumes = world.volumes.of;
  const mask = state.chosen?.mask;
  const wanted = fold(text);
  const rows = [];
  const matching = wanted
    ? model.code.map((code, i) =>
        fold(`${labelOf(model, i)} ${code}`).includes(wanted),
      )
    : null;
  for (let i = 0; i < volumes.length; i++) {
    const o = model.origin[i];
    const d = model.destination[i];
    if (
      volumes[i] === 0 ||
      (mask && !mask[o] && !mask[d]) ||
      (matching && !matching[o] && !matching[d])
    )
      continue;
    rows.push(i);
  }
  return rows.sort((a, b) => volumes[b] - volumes[a] || a - b);
}

/* The label of a cell's slice or interval. */
export function groupOf(model, cell) {
  const { slices, times } = model.data;
  if (slices)
    return slices.keys[model.group[cell]].map((value) => value ?? "all");
  return times ? [times.intervals[model.group[cell]][2]] : [];
}

export function fillTable(world, body, count, rows, act) {
  const { model, state } = world;
  const named = model.data.bases;
  body.textContent = "";
  for (const i of rows.slice(0, ROWS)) {
    const row = make("tr");
    for (const zone of [model.origin[i], model.destination[i]]) {
      const cell = make("td");
      cell.append(
        button(
          labelOf(model, zone),
          () => act.zones([zone], labelOf(model, zone)),
          "link",
        ),
      );
      row.append(cell);
    }
    for (const value of groupOf(model, i)) row.append(make("td", value));
    for (const basis of named)
      row.append(make("td", exact(model.volume[basis][i]), "number"));
    for (const [, values] of model.numbers)
      row.append(
        make(
          "td",
          Number.isFinite(values[i]) ? String(values[i]) : "",
          "number",
        ),
      );
    body.append(row);
  }
  const all =
    rows.length === model.origin.length
      ? ""
      : state.chosen
        ? ` of ${state.chosen.label}`
        : " that match";
  count.textContent =
    rows.length > ROWS
      ? `The ${ROWS} largest of ${exact(rows.length)} numbers${all}; the CSV file has all of them.`
      : `${exact(rows.length)} numbers${all}.`;
}
