/* What is known of the flows between areas: the estimate of the page, and the range that the cells prove for any set of
   areas. A set is a mask over the areas; null is everything. */

import { columnOf, shapesOf } from "./columns.mjs";
import { shownVolumes } from "./model.mjs";

export function estimateOf(data) {
  const { answer, cells } = data;
  const { areas, places, rows, touched } = answer;
  return {
    data,
    answer,
    code: areas.code,
    n: areas.code.length,
    x: columnOf(areas.x),
    y: columnOf(areas.y),
    outlines: shapesOf(areas.shapes),
    place: columnOf(areas.place),
    name: places.name,
    placeX: columnOf(places.x),
    placeY: columnOf(places.y),
    origin: columnOf(rows.origin),
    destination: columnOf(rows.destination),
    /* What is shown, and the trips or answers behind it, on which k was promised. */
    hundredths: columnOf(rows[answer.basis]),
    counted: columnOf(rows.trips),
    time: answer.times ? columnOf(answer.time) : null,
    times: answer.times ?? [],
    spans: {
      origin: spansOf(touched.origin),
      destination: spansOf(touched.destination),
    },
    cells: {
      data,
      origin: columnOf(cells.origin),
      destination: columnOf(cells.destination),
      volume: { [answer.basis]: columnOf(cells[answer.basis]) },
      group:
        data.slices || data.times
          ? columnOf((data.slices || data.times).of)
          : null,
      /* The steps of the interval of each cell, where times fold. */
      first: answer.first ? columnOf(answer.first) : null,
      stop: answer.stop ? columnOf(answer.stop) : null,
    },
  };
}

/* The areas of each zone: ranges `start` to `start + length`, those of zone z from first[z] to first[z + 1]. */
function spansOf({ n, start, length, partial }) {
  const counts = columnOf(n);
  const first = new Uint32Array(counts.length + 1);
  for (let z = 0; z < counts.length; z++) first[z + 1] = first[z] + counts[z];
  return {
    first,
    start: columnOf(start),
    length: columnOf(length),
    partial: columnOf(partial),
  };
}

export function maskOf(model, areas) {
  const mask = new Uint8Array(model.n);
  for (const area of areas) mask[area] = 1;
  return mask;
}

/* Whether rows of the estimate are counted: all times, or one. */
const timeOf = (model, hour) =>
  hour === null || !model.time ? -1 : model.times.indexOf(hour);

/* Calls act(origin, destination, trips) for each row from one set to another. */
export function eachRow(model, { from, to, hour, counted }, act) {
  const values = counted ? model.counted : model.hundredths;
  const at = timeOf(model, hour);
  for (let i = 0; i < model.hundredths.length; i++) {
    const o = model.origin[i];
    const d = model.destination[i];
    if (
      (from && !from[o]) ||
      (to && !to[d]) ||
      (at >= 0 && model.time[i] !== at)
    )
      continue;
    act(o, d, values[i]);
  }
}

export function totalOf(model, query) {
  let sum = 0;
  eachRow(model, query, (o, d, v) => {
    sum += v;
  });
  return sum / 100;
}

/* Sums by place, or by area, of one end of the rows of a query. */
export function sumsAt(model, query, end, by) {
  const sums = new Float64Array(by ? model.name.length : model.n);
  eachRow(model, query, (o, d, v) => {
    const area = end === "origin" ? o : d;
    sums[by ? by[area] : area] += v;
  });
  return sums.map((v) => v / 100);
}

/* The flows of a query between different places, the largest first. */
export function flowsBetween(model, query, most) {
  const n = model.name.length;
  const sums = new Map();
  eachRow(model, query, (o, d, v) => {
    const a = model.place[o];
    const b = model.place[d];
    if (a !== b) sums.set(a * n + b, (sums.get(a * n + b) ?? 0) + v);
  });
  const largest = [...sums]
    .sort((a, b) => b[1] - a[1] || a[0] - b[0])
    .slice(0, most);
  return largest.map(([key, v]) => ({
    from: Math.floor(key / n),
    to: key % n,
    trips: v / 100,
  }));
}

/* How zones of an end lie to a set: 0 outside, 1 partly or completely in it, 2 completely. */
function zonesAt(model, end, mask) {
  const { first, start, length, partial } = model.spans[end];
  const n = first.length - 1;
  const found = new Uint8Array(n);
  if (!mask) return found.fill(2);
  const before = new Uint32Array(model.n + 1);
  for (let i = 0; i < model.n; i++) before[i + 1] = before[i] + mask[i];
  for (let z = 0; z < n; z++) {
    let inside = 0;
    let all = 0;
    for (let s = first[z]; s < first[z + 1]; s++) {
      inside += before[start[s] + length[s]] - before[start[s]];
      all += length[s];
    }
    found[z] = inside === 0 ? 0 : inside === all && !partial[z] ? 2 : 1;
  }
  return found;
}

/* The volumes of the cells at an hour, kept for the hour that was asked last. Where times fold, those of all hours. */
function volumesAt(model, asked) {
  const { cells, data, answer } = model;
  const hour = cells.first ? null : asked;
  if (model.volumesOf?.hour !== hour) {
    const { slices } = data;
    const key = (slices?.columns ?? []).map((name, i) =>
      i === slices.time ? hour : null,
    );
    model.volumesOf = {
      hour,
      values: shownVolumes(cells, { basis: answer.basis, key, hour: null }),
    };
  }
  return model.volumesOf.values;
}

/* What the cells prove of a query: trips of cells that lie completely in it, and of all cells that touch it. */
export function rangeOf(model, { from, to, hour }) {
  const { cells } = model;
  const o = zonesAt(model, "origin", from);
  const d = zonesAt(model, "destination", to);
  const volumes = volumesAt(model, hour);
  const step = cells.first ? timeOf(model, hour) : -1;
  let low = 0;
  let high = 0;
  for (let i = 0; i < volumes.length; i++) {
    const a = o[cells.origin[i]];
    const b = d[cells.destination[i]];
    if (!a || !b) continue;
    if (step >= 0 && (cells.first[i] > step || cells.stop[i] <= step)) continue;
    high += volumes[i];
    const narrow = step < 0 || cells.stop[i] - cells.first[i] === 1;
    if (a === 2 && b === 2 && narrow) low += volumes[i];
  }
  return { low, high };
}

/* Numbers for people: three digits, a range rounded outwards. */
export function roundedTo3(v, round = Math.round) {
  if (!(v > 0)) return 0;
  const step = 10 ** Math.max(0, Math.floor(Math.log10(v)) - 2);
  return round(+(v / step).toFixed(6)) * step;
}
export function rangeWords(world, { low, high }) {
  const { number } = world;
  return `${number(roundedTo3(low, Math.floor))}–${number(roundedTo3(high, Math.ceil))}`;
}

/* The places of a text, those that begin with it first; codes of areas too. */
export function findPlaces(world, text, fold) {
  const { model } = world;
  const wanted = fold(text);
  if (!wanted) return [];
  world.index ??= model.name
    .map((label, i) => ({ label, place: i, folded: fold(label) }))
    .sort(
      (a, b) =>
        world.volume[b.place] - world.volume[a.place] || a.place - b.place,
    );
  const begins = (entry) =>
    entry.folded.startsWith(wanted)
      ? 2
      : entry.folded.includes(` ${wanted}`) ||
          entry.folded.includes(`-${wanted}`)
        ? 1
        : 0;
  const found = world.index
    .filter((entry) => entry.folded.includes(wanted))
    .sort((a, b) => begins(b) - begins(a));
  const coded = model.code.findIndex((code) => code.toLowerCase() === wanted);
  return [
    ...(coded >= 0 ? [{ label: model.code[coded], areas: [coded] }] : []),
    ...found,
  ];
}
