/* The published cells of a page: which are shown, what they sum to between clusters, and what places are called. */

import { clusterLevels } from "./clusters.mjs";
import { columnOf, shapesOf } from "./columns.mjs";

export const NOWHERE = -(2 ** 31);

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const TENTHS = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
/* A number for people. Counts are whole; a mean for each hour may not be. */
export const exact = (v) => (Math.abs(v) < 10 ? TENTHS : WHOLE).format(v);

export function modelOf(data) {
  const { zones, cells } = data;
  const model = {
    data,
    code: zones.code,
    name: zones.name,
    words: zones.words,
    role: columnOf(zones.role),
    x: columnOf(zones.x),
    y: columnOf(zones.y),
    area: columnOf(zones.area),
    word: columnOf(zones.word),
    number: columnOf(zones.number),
    hectometres: columnOf(zones.hectometres),
    outlines: shapesOf(zones.shapes),
    origin: columnOf(cells.origin),
    destination: columnOf(cells.destination),
    volume: Object.fromEntries(
      data.bases.map((basis) => [basis, columnOf(cells[basis])]),
    ),
    /* Means, totals and medians by name; not a number where a cell has none. */
    numbers: Object.entries(data.numbers ?? {}).map(([name, values]) => [
      name,
      columnOf(values),
    ]),
    group:
      data.slices || data.times
        ? columnOf((data.slices || data.times).of)
        : null,
  };
  model.weight = new Float64Array(model.code.length);
  const basis = model.volume[data.bases[0]];
  for (let i = 0; i < basis.length; i++) {
    const v = Math.max(basis[i], 0);
    model.weight[model.origin[i]] += v;
    model.weight[model.destination[i]] += v;
  }
  model.extent = extentOf(model);
  model.levels = clusterLevels(
    model.x,
    model.y,
    model.weight,
    NOWHERE,
    Math.max(
      model.extent.east - model.extent.west,
      model.extent.south - model.extent.north,
      1,
    ),
  );
  return model;
}

/* The box of the middle 97 % of trip ends in each direction: a far zone must not make the city tiny. */
function extentOf(model) {
  const bounds = (values) => {
    const placed = [...values.keys()]
      .filter((i) => values[i] !== NOWHERE)
      .sort((a, b) => values[a] - values[b]);
    const total = placed.reduce((sum, i) => sum + model.weight[i], 0);
    let sum = 0;
    let low = null;
    let high = null;
    for (const i of placed) {
      sum += model.weight[i];
      if (low === null && sum >= 0.015 * total) low = values[i];
      if (high === null && sum >= 0.985 * total) high = values[i];
    }
    return [low ?? 0, high ?? 1];
  };
  const [west, east] = bounds(model.x);
  const [north, south] = bounds(model.y);
  return {
    west,
    east: Math.max(east, west + 1),
    north,
    south: Math.max(south, north + 1),
  };
}

/* ---- what is shown ---- */

/* A value of a slice column and the groups that contain it: those above it in the tree of a folded column. */
export function groupsOf(slices, column, value) {
  const parents = new Map(slices.trees?.[column] ?? []);
  const found = [];
  for (let at = value; at !== undefined && at !== null; at = parents.get(at))
    found.push(at);
  return found;
}

/* How much of each cell is shown: all, none, or for an hour its mean an hour. `shown` has `key` (a value of each slice
   column, null for all together), `hour` and `basis`. */
export function shownVolumes(model, shown) {
  const volume = model.volume[shown.basis];
  const { slices, times } = model.data;
  if (!model.group) return volume;
  const factor = slices
    ? slices.keys.map((key) =>
        key.every(
          (value, i) =>
            shown.key[i] === null ||
            groupsOf(slices, i, value).includes(shown.key[i]),
        )
          ? 1
          : 0,
      )
    : times.intervals.map(([from, to]) =>
        shown.hour === null
          ? 1
          : from <= shown.hour && shown.hour < to
            ? 1 / (to - from)
            : 0,
      );
  const part = new Float64Array(volume.length);
  for (let i = 0; i < part.length; i++)
    part[i] = volume[i] * factor[model.group[i]];
  return part;
}

/* Sums of the cells between the clusters of a level, the largest first. `mask` marks the chosen zones: then only cells
   that start or end in one of them count. */
export function sumsBetween(model, level, volumes, mask) {
  const { of, x } = level;
  const n = x.length;
  const cells = volumes.length;
  let size = 1024;
  while (size < 2 * Math.min(cells, n * n + 1)) size *= 2;
  /* A hash table with open addressing: pairs of clusters as keys. */
  const slot = new Int32Array(size).fill(-1);
  const from = [];
  const to = [];
  const sum = [];
  const starts = new Float64Array(n);
  const ends = new Float64Array(n);
  const inside = new Float64Array(n);
  let total = 0;
  let elsewhere = 0;
  for (let i = 0; i < cells; i++) {
    const v = volumes[i];
    if (
      v === 0 ||
      (mask && !mask[model.origin[i]] && !mask[model.destination[i]])
    )
      continue;
    total += v;
    const o = of[model.origin[i]];
    const d = of[model.destination[i]];
    if (o >= 0) starts[o] += v;
    if (d >= 0) ends[d] += v;
    if (o < 0 || d < 0) {
      elsewhere += v;
      continue;
    }
    if (o === d) {
      inside[o] += v;
      continue;
    }
    let h = (Math.imul(o, 73856093) ^ Math.imul(d, 19349663)) & (size - 1);
    while (slot[h] >= 0 && (from[slot[h]] !== o || to[slot[h]] !== d))
      h = (h + 1) & (size - 1);
    if (slot[h] < 0) {
      slot[h] = from.length;
      from.push(o);
      to.push(d);
      sum.push(0);
    }
    sum[slot[h]] += v;
  }
  const order = Uint32Array.from(from.keys()).sort(
    (a, b) => sum[b] - sum[a] || a - b,
  );
  return {
    from,
    to,
    sum,
    order,
    starts,
    ends,
    inside,
    total,
    elsewhere,
    most: order.length ? Math.max(sum[order[0]], 1e-9) : 1,
  };
}

/* ---- what places are called ---- */

/* The name of a zone, or where it lies; its code where neither is known. */
export function labelOf(model, zone) {
  if (model.name?.[zone]) return model.name[zone];
  const words = model.words[model.word[zone]];
  if (!words) return model.code[zone];
  /* Zones that would share a name are numbered, the largest first. */
  const far = model.hectometres[zone] / 10;
  const number = model.number[zone] ? ` (${model.number[zone]})` : "";
  return `${far ? `${far < 10 ? far.toFixed(1) : Math.round(far)} km ` : ""}${words}${number}`;
}

/* A cluster is called after its heaviest zone. */
export const clusterLabel = (model, level, cluster) =>
  labelOf(model, level.main[cluster]);

export function zonesIn(level, cluster) {
  const found = [];
  for (let i = 0; i < level.of.length; i++)
    if (level.of[i] === cluster) found.push(i);
  return found;
}

/* What can be searched for: names of zones, or towns near them, and codes; each with its zones. */
export function searchIndex(model) {
  const entries = new Map();
  for (let i = 0; i < model.code.length; i++) {
    const label =
      model.name?.[i] || model.words[model.word[i]] || model.code[i];
    if (!entries.has(label)) entries.set(label, []);
    entries.get(label).push(i);
  }
  const weightOf = (zones) =>
    zones.reduce((sum, i) => sum + model.weight[i], 0);
  return [...entries]
    .map(([label, zones]) => ({
      label,
      zones,
      weight: weightOf(zones),
      folded: fold(label),
    }))
    .sort((a, b) => b.weight - a.weight);
}
/* Without accents and capitals: "nunoa" finds "Ñuñoa". */
export const fold = (text) =>
  text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase().trim();

export function search(model, index, text, most) {
  const wanted = fold(text);
  if (!wanted) return [];
  const found = index.filter((entry) => entry.folded.includes(wanted));
  /* Those that begin with the word come first. */
  found.sort(
    (a, b) =>
      wordStarts(b.folded, wanted) - wordStarts(a.folded, wanted) ||
      b.weight - a.weight,
  );
  const coded = model.code.findIndex((code) => code.toLowerCase() === wanted);
  return [
    ...(coded >= 0 ? [{ label: model.code[coded], zones: [coded] }] : []),
    ...found,
  ].slice(0, most);
}
const wordStarts = (label, wanted) =>
  label.startsWith(wanted) || label.includes(` ${wanted}`) ? 1 : 0;
