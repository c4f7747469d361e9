/* The parts of the map's script that need no page: run by node, see test_map_module.py. */

import assert from "node:assert/strict";
import { test } from "node:test";

const part = (name) => import(new URL(`../../src/flowveil/published/page/map/${name}.mjs`, import.meta.url));
const { centralOf, decode, distanceToFlow, inside } = await part("geometry");
const { limitsOf, namesOf } = await part("scale");
const { MISSING, missingWith, modelOf, nameOf, partnersOf, shapesOf, shownFlows, valuesOf, volumesOf, zoneNamed, zonesHolding } = await part("model");
const { describe, wayBack } = await part("panel");
const { alongAxis, sliceAt, stepsOf, valuesAlong } = await part("slices");

const square = (x, y, side) => [[x, y, side, 0, 0, side, -side, 0]];
const columns = (codes, more = {}) => ({
  code: codes, level: codes.map(() => 8), tiles: codes.map(() => 7), area: codes.map(() => 2),
  x: codes.map((_, i) => 10 * i + 5), y: codes.map(() => 5), shape: codes.map((_, i) => i), ...more,
});
/* Two origins, three destinations; from a to c nothing is published, and nothing ends in d. */
const release = () => ({
  bases: ["trips"], homogeneous: true, frame: {}, grid: null, shapes: [square(0, 0, 10), square(10, 0, 10), square(20, 0, 10)],
  layers: { origin: columns(["a", "b"], { trips: [30, 50], cells: [1, 2], name: ["Harbour", null] }), destination: columns(["a", "c", "d"], { x: [5, 25, 35], trips: [60, 20, 0], cells: [2, 1, 0] }) },
  flows: { origin: [1, 0, 1], destination: [0, 0, 1], trips: [30, 30, 20] }, count: { flows: 3, origin: 2, destination: 3 },
});
const modelFor = (data) => modelOf(data, shapesOf(data));
const looks = { basis: "trips", colour: "density", selected: null };

test("rings are differences from point to point, and hold what lies inside", () => {
  const shape = decode(square(10, 0, 10));
  assert.deepEqual([shape.west, shape.east, shape.north, shape.south], [10, 20, 0, 10]);
  assert.ok(inside(shape, 15, 5));
  assert.ok(!inside(shape, 25, 5));
});

test("what is not published is not zero: no value, and said in words", () => {
  const model = modelFor(release()), selected = { end: "origin", zone: 0 };
  assert.deepEqual(volumesOf(model, "destination", "trips", selected), [30, null, null]);
  assert.deepEqual(valuesOf(model, "destination", { ...looks, selected }), [15, null, null]);
  assert.deepEqual(valuesOf(model, "destination", looks), [30, 10, null]);
  const said = describe(model, { ...looks, selected }, "destination", 1).join("; ");
  assert.match(said, /Trips from the selected zone: none, or too few to publish/);
  assert.doesNotMatch(said, /\b0 trips/);
  assert.match(describe(model, looks, "destination", 2).join(), /none, or too few/);
});

test("a zone without a place is listed with its flows, and neither is drawn", () => {
  const data = release(), { origin } = data.layers;
  origin.code[1] = "outside"; origin.x[1] = origin.y[1] = origin.area[1] = null; origin.shape[1] = -1;
  const model = modelFor(data), shown = shownFlows(model, { basis: "trips", lines: 5, selected: null });
  assert.deepEqual([shown.between, shown.within], [[], [1]]);
  assert.equal(partnersOf(model, { end: "origin", zone: 1 }, "trips").length, 2);
  assert.deepEqual(valuesOf(model, "origin", looks), [15, null]);
});

test("estimates have no decimals", () => {
  const data = { ...release(), estimated: true };
  data.layers.origin.trips = [99.87, 0.2];
  const model = modelFor(data), said = [0, 1].map((zone) => describe(model, looks, "origin", zone).join("; "));
  assert.match(said[0], /about 100 trips/);
  assert.match(said[1], /; less than 1 trip start/);
});

test("a flow that the page does not hold is not called unpublished", () => {
  const data = release();
  data.layers.origin.cells[0] = 2;
  const model = modelFor(data);
  assert.match(missingWith(model, { end: "origin", zone: 0 }), /or not among the largest flows/);
  assert.equal(missingWith(model, { end: "origin", zone: 1 }), MISSING);
});

test("partners and flows come largest first, and the way back is found or said to be missing", () => {
  const model = modelFor(release());
  assert.deepEqual(partnersOf(model, { end: "origin", zone: 1 }, "trips").map((p) => [p.zone, p.volume]), [[0, 30], [1, 20]]);
  const shown = shownFlows(model, { basis: "trips", lines: 5, selected: null });
  assert.deepEqual([shown.between, shown.within], [[2, 0], [1]]);
  assert.equal(wayBack(model, 0), undefined);
  const data = release();
  data.layers.destination.code = ["a", "b", "d"];
  assert.deepEqual(wayBack(modelFor(data), 0), { flow: -1, words: MISSING });
});

test("zones are found and shown by name and by code", () => {
  const model = modelFor(release());
  assert.equal(zoneNamed(model, "origin", " harbour "), 0);
  assert.equal(zoneNamed(model, "origin", "B"), 1);
  assert.equal(zoneNamed(model, "origin", "nowhere"), -1);
  assert.deepEqual([nameOf(model, "origin", 0), nameOf(model, "origin", 1)], ["Harbour (a)", "b"]);
  model.data.words = ["around Ely", "east of Ely", "outside the study area"];
  Object.assign(model.layers.destination, { where: [0, 1, 2], far: [null, 2, null] });
  Object.assign(model.layers.origin, { where: [1, 1], far: [1, 12] });
  assert.deepEqual([0, 1, 2].map((zone) => nameOf(model, "destination", zone)), ["around Ely (a)", "2.0 km east of Ely (c)", "outside the study area (d)"]);
  assert.deepEqual([0, 1].map((zone) => nameOf(model, "origin", zone)), ["Harbour (a)", "12 km east of Ely (b)"]);
});

test("the first view holds the central 95 % of the volume", () => {
  const near = Array.from({ length: 10 }, (_, i) => ({ west: i, east: i + 1, north: 0, south: 1, volume: 100 }));
  const far = { west: 500, east: 501, north: 0, south: 1, volume: 12 };
  assert.equal(centralOf([...near, far]).east, 10);
  assert.equal(centralOf([...near, { ...far, volume: 13 }]).east, 501);
});

test("a pointer is near the curve of a flow, not near its chord", () => {
  assert.ok(distanceToFlow(50, 18 / 2, 0, 0, 100, 0) < 0.5);
  assert.ok(distanceToFlow(50, 0, 0, 0, 100, 0) > 6);
});

test("class limits are round, and a few huge values do not stretch them", () => {
  const values = [...Array.from({ length: 198 }, (_, i) => 100 * 20 ** (i / 197)), 0.01, 0.01];
  const limits = limitsOf(values);
  assert.ok(limits.length >= 3 && limits[0] >= 100);
  assert.ok(limits.every((v) => ["1", "2", "5"].includes(String(v).replace(/0+$/, ""))));
  assert.equal(namesOf(limits, 0.01, 2000).length, limits.length + 1);
});

test("a view takes its zones from the table of areas; one that is not published is empty", () => {
  const data = { ...release(), areas: columns(["p", "q", "r"]) };
  data.views = { first: 0, list: [{ origin: { zone: [2], trips: [9], cells: [1] }, destination: { zone: [0], trips: [9], cells: [1] }, flows: { origin: [0], destination: [0], trips: [9] }, count: { flows: 1, origin: 1, destination: 1 }, homogeneous: true }] };
  const model = modelFor(data);
  assert.deepEqual([model.layers.origin.code, model.layers.origin.shape, model.layers.origin.trips], [["r"], [2], [9]]);
  assert.deepEqual(modelOf(data, shapesOf(data), -1).layers.origin.code, ["a", "b"]);
  assert.deepEqual(modelOf(data, shapesOf(data), -2).layers.origin.code, []);
});

test("zones that hold a place come from fine to coarse", () => {
  const data = release();
  data.shapes = [square(0, 0, 40), square(0, 0, 10), square(0, 0, 20)];
  data.layers.destination.area = [16, 1, 4];
  assert.deepEqual(zonesHolding(modelFor(data), "destination", 5, 5), [1, 2, 0]);
  assert.deepEqual(zonesHolding(modelFor(data), "destination", 15, 5), [2, 0]);
});

test("slices are found by their columns; a gap along time is a slice that is not published", () => {
  const slices = { columns: ["time", "sex"], time: 0, keys: [["2024-01-01", "f"], ["2024-01-01T08", "f"], ["2024-01-01T09", "f"], ["2024-01-01T08", null]] };
  assert.equal(sliceAt(slices, ["2024-01-01T08", null]), 3);
  assert.deepEqual(stepsOf(slices), [10, 13]);
  const hours = valuesAlong(slices, 0, 13);
  assert.deepEqual(hours, ["2024-01-01T08", "2024-01-01T09"]);
  assert.deepEqual(alongAxis(slices, ["2024-01-01T08", null], hours), [3, -1]);
});

test("names of towns do not lie on each other, and the largest comes first", async () => {
  const { placedTowns } = await part("context");
  const towns = [["Large", 50, 50], ["Hidden", 52, 52], ["Far", 50, 90], ["Outside", 500, 50]];
  const placed = placedTowns(towns, { x: 0, y: 0, k: 1 }, 200, 120, (text) => 6 * text.length);
  assert.deepEqual(placed.map((t) => t.name), ["Large", "Far"]);
  const named = placedTowns([["District", 50, 50, true], ...towns], { x: 0, y: 0, k: 1 }, 200, 120, (text) => 6 * text.length);
  assert.deepEqual(named.map((t) => [t.name, t.own]), [["District", true], ["Far", false]]);
});
