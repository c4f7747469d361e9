/* What a page shows, apart from how: the zones and flows of one view, and what a selection makes of them.

   The data of a page has one view of its own (`layers`, `flows`, `count`) and perhaps further ones (`views`): slices, or
   the zones as published where the page begins with a common zoning. Their zones are rows of one table, `areas`. */

import { decode, extentOf, inside } from "./geometry.mjs";

export const ENDS = ["origin", "destination"];
export const OTHER = { origin: "destination", destination: "origin" };

/* Not published is not zero. */
export const MISSING = "none, or too few to publish";

export const shapesOf = (data) => data.shapes.map(decode);

const layerOf = (areas, part) => {
  const layer = {};
  for (const [name, column] of Object.entries(areas)) layer[name] = part.zone.map((z) => column[z]);
  const { zone, ...totals } = part;
  return { ...layer, ...totals };
};

/* A slice that was not published: no zone, no flow. */
const emptyOf = (data) => {
  const none = Object.fromEntries(data.bases.map((b) => [b, []]));
  return { origin: { zone: [], cells: [], ...none }, destination: { zone: [], cells: [], ...none }, flows: { origin: [], destination: [], ...none }, count: { flows: 0, origin: 0, destination: 0 }, homogeneous: true };
};

/* One view; -1 is the page's own, -2 a slice that is not published. */
export function modelOf(data, shapes, n = data.views?.first ?? -1) {
  const view = n >= 0 ? data.views.list[n] : n === -2 ? emptyOf(data) : null;
  const layers = view ? { ...data.layers, ...Object.fromEntries(ENDS.map((end) => [end, layerOf(data.areas, view[end])])) } : data.layers;
  const own = view || data, flows = own.flows;
  const rank = {};
  for (const b of data.bases) rank[b] = flows[b] ? flows[b].map((_, i) => i).sort((p, q) => flows[b][q] - flows[b][p] || p - q) : [];
  const a = layers.origin, d = layers.destination;
  const within = flows.origin.map((o, i) => a.code[o] === d.code[flows.destination[i]] || (a.x[o] !== null && a.x[o] === d.x[flows.destination[i]] && a.y[o] === d.y[flows.destination[i]]));
  /* What lies outside the study area has no place: such flows are listed, not drawn. */
  const unplaced = flows.origin.map((o, i) => a.x[o] === null || d.x[flows.destination[i]] === null);
  return {
    data, shapes, n, layers, flows, rank, within, unplaced,
    count: own.count, homogeneous: own.homogeneous, estimated: Boolean(own.estimated), word: own.estimated ? "area" : "zone", times: own.times || null, missing: data.missing || MISSING,
    boxes: Boolean(data.boxes) && !own.estimated,
  };
}

export const shapeAt = (model, layer, zone) => model.shapes[layer.shape?.[zone]];
export const placeAt = (model, layer, zone) => {
  const shape = shapeAt(model, layer, zone), x = layer.x[zone], y = layer.y[zone];
  return shape || (x === null ? null : { west: x, east: x, north: y, south: y });
};

/* All areas of the maps, each with its volume, to find a view that holds them. */
export function areasOf(model, basis) {
  const names = model.layers.origin ? ENDS : Object.keys(model.layers), areas = [];
  for (const name of names) {
    const layer = model.layers[name];
    layer.code.forEach((_, i) => {
      const place = placeAt(model, layer, i);
      if (place) areas.push({ west: place.west, east: place.east, north: place.north, south: place.south, volume: layer[basis] ? layer[basis][i] : 1 });
    });
  }
  return areas;
}
/* Shapes of further layers and views too. */
export const wholeExtent = (model) => extentOf([...areasOf(model), ...model.shapes.filter((s) => s.points.length)]);

/* Volumes of a layer, null where nothing is published; with a selection at the other end, those with it. */
export function volumesOf(model, name, basis, selected) {
  const layer = model.layers[name], end = layer.end || name;
  if (layer.values) return layer.values;
  if (selected && selected.end !== end && !layer.fixed) {
    const volume = new Array(layer.code.length).fill(null), { flows } = model;
    flows[selected.end].forEach((z, i) => { if (z === selected.zone) volume[flows[end][i]] += flows[basis][i]; });
    return volume;
  }
  return layer.cells ? layer[basis].map((v, i) => (layer.cells[i] ? v : null)) : layer[basis];
}

/* What a layer is coloured by. */
export function valuesOf(model, name, { basis, colour, selected }) {
  const layer = model.layers[name];
  if (layer.values) return layer.values;
  const volume = volumesOf(model, name, basis, selected);
  if (colour === "volume") return volume;
  if (colour === "density") return volume.map((v, i) => (v === null || layer.area[i] === null ? null : layer.area[i] ? v / layer.area[i] : 0));
  const column = colour === "tiles" ? layer.tiles : layer.level;
  return column.map((v, i) => (volume[i] === null ? null : v));
}

/* Whether the page holds every published cell of a zone: only then is a partner that is not listed not published. */
export const holdsAll = (model, { end, zone }) => {
  const layer = model.layers[end];
  return !layer.cells || model.flows[end].reduce((n, z) => n + (z === zone), 0) >= layer.cells[zone];
};
export const missingWith = (model, selected) => (holdsAll(model, selected) ? model.missing : `${model.missing}, or not among the largest flows that this page holds`);

/* The partners of a zone, largest first. */
export function partnersOf(model, { end, zone }, basis) {
  return model.rank[basis].filter((i) => model.flows[end][i] === zone).map((i) => ({ flow: i, zone: model.flows[OTHER[end]][i], volume: model.flows[basis][i] }));
}

/* Zones of an end that hold a point, from fine to coarse: layers are in drawing order, large areas first. */
export function zonesHolding(model, end, x, y) {
  const layer = model.layers[end], found = [];
  for (let i = layer.code.length - 1; i >= 0; i--) {
    const shape = shapeAt(model, layer, i);
    if (shape && inside(shape, x, y)) found.push(i);
  }
  return found.sort((p, q) => (layer.area[p] ?? Infinity) - (layer.area[q] ?? Infinity) || q - p);
}

/* The largest flows that fit the selection, smallest first, so that the largest lie on top. */
export function shownFlows(model, { basis, lines, selected }) {
  const between = [], inner = [];
  for (const i of model.rank[basis]) {
    if (between.length >= lines && inner.length >= lines) break;
    if (model.unplaced[i] || (selected && model.flows[selected.end][i] !== selected.zone)) continue;
    const list = model.within[i] ? inner : between;
    if (list.length < lines) list.push(i);
  }
  return { between: between.reverse(), within: inner.reverse() };
}

/* What a zone is called: its name, or the place it is at; nothing where neither is known. */
export const calledOf = (model, layer, zone) => {
  const words = layer.name?.[zone] || model.data.words?.[layer.where?.[zone]], far = layer.name?.[zone] ? null : layer.far?.[zone];
  return words && typeof far === "number" ? `${far < 10 ? far.toFixed(1) : far} km ${words}` : words;
};
/* The same with its code. */
export const nameOf = (model, end, zone) => {
  const layer = model.layers[end], name = calledOf(model, layer, zone);
  return name ? `${name} (${layer.code[zone]})` : layer.code[zone];
};
/* The zone of a code, or of a name that only one zone has; -1 otherwise. */
export function zoneNamed(model, end, wanted) {
  const layer = model.layers[end], text = wanted.trim().toLowerCase();
  const coded = layer.code.findIndex((code) => code.toLowerCase() === text);
  if (coded >= 0 || !layer.name) return coded;
  const named = layer.name.flatMap((name, i) => (name && name.toLowerCase() === text ? [i] : []));
  return named.length === 1 ? named[0] : -1;
}
