/* The parts of the maps' scripts that need no page: run by node, see test_map_module.py. */

import assert from "node:assert/strict";
import { test } from "node:test";

const part = (name) => import(new URL(`../../src/flowveil/published/page/${name}.mjs`, import.meta.url));
const { centralOf, decode, inside } = await part("map/geometry");
const { limitsOf, namesOf } = await part("map/scale");
const { placedTowns } = await part("map/context");
const { clusterLevels, levelFor } = await part("flows/clusters");
const { columnOf, contains, shapesOf } = await part("flows/columns");
const { NOWHERE, labelOf, modelOf, search, searchIndex, shownVolumes, sumsBetween } = await part("flows/model");
const { legendSteps } = await part("flows/paint");
const { stepsOf } = await part("flows/hours");
const { choose, shownCells } = await part("flows/panel");
const { csvOf, fileName } = await part("flows/take");

const pack = (type, values) => {
  const Type = { u1: Uint8Array, u2: Uint16Array, i4: Int32Array, f8: Float64Array }[type];
  return { type, bytes: Buffer.from(Type.from(values).buffer).toString("base64") };
};

/* Four zones: a and b lie close together, c far away, d nowhere. The cells: a to c, b to c, c to a, a to b, d to a. */
const release = (more = {}) => ({
  bases: ["trips"], homogeneous: true, frame: { west: 0, north: 0, perUnit: 1e-6 },
  zones: {
    code: ["a", "b", "c", "d"], name: null, role: pack("u1", [3, 3, 3, 1]), x: pack("i4", [0, 100, 100000, NOWHERE]), y: pack("i4", [0, 0, 50000, NOWHERE]),
    area: pack("f8", [1, 2, 3, -1]), words: ["around Ely", "east of Ñuñoa", "outside the study area"], word: pack("u1", [0, 1, 1, 2]), hectometres: pack("u1", [0, 21, 120, 0]), number: pack("u1", [0, 0, 2, 0]),
    shapes: { sizes: pack("u1", [0, 0, 0, 0]), bytes: "" },
  },
  cells: { count: 5, origin: pack("u1", [0, 1, 2, 0, 3]), destination: pack("u1", [2, 2, 0, 1, 0]), trips: pack("u2", [30, 20, 10, 40, 15]) },
  context: null, words: { title: "Trips", missing: "none, or too few to publish", picture: [] }, ...more,
});
const everything = { basis: "trips", key: [], hour: null };
const flowsOf = (sums) => [...sums.order].map((i) => [sums.from[i], sums.to[i], sums.sum[i]]);

test("columns and shapes are read as they were written", () => {
  assert.deepEqual([...columnOf(pack("i4", [-5, 70000]))], [-5, 70000]);
  /* One ring of three corners: 10,0 then +300,0 then 0,-1. */
  const bytes = Buffer.from([2, 6, 20, 0, 0xd8, 4, 0, 0, 1]).toString("base64"), { shape } = shapesOf({ sizes: pack("u1", [0, 9]), bytes });
  assert.equal(shape(0), null);
  assert.deepEqual([...shape(1).lines[0]], [10, 0, 310, 0, 310, -1]);
  assert.deepEqual([shape(1).west, shape(1).east, shape(1).north], [10, 310, -1]);
  assert.ok(contains({ lines: [[0, 0, 10, 0, 10, 10, 0, 10]], west: 0, east: 10, north: 0, south: 10 }, 5, 5));
});

test("clusters join near zones only, keep all zones, and have no cluster closer than the gap", () => {
  const n = 400, x = Float64Array.from({ length: n }, (_, i) => (i * 7919) % 10000), y = Float64Array.from({ length: n }, (_, i) => (i * 104729) % 10000), weight = Float64Array.from({ length: n }, (_, i) => 1 + (i % 17));
  const levels = clusterLevels(x, y, weight, NOWHERE, 10000);
  assert.equal(levels[0].x.length, n);
  assert.ok(levels.at(-1).x.length < 12);
  for (const level of levels) {
    assert.ok(level.of.every((c) => c >= 0 && c < level.x.length));
    const total = level.weight.reduce((a, b) => a + b, 0);
    assert.ok(Math.abs(total - weight.reduce((a, b) => a + b, 0)) < 1e-6);
  }
  /* A coarser level joins clusters of the finer one: zones that are together stay together. */
  for (let l = 1; l < levels.length; l++) {
    const parent = new Map();
    levels[l - 1].of.forEach((c, i) => { if (parent.has(c)) assert.equal(parent.get(c), levels[l].of[i]); parent.set(c, levels[l].of[i]); });
  }
  assert.equal(levelFor(levels, 0), 0);
  assert.equal(levelFor(levels, Infinity), levels.length - 1);
});

test("sums between clusters count every cell once, wherever it is", () => {
  const model = modelOf(release()), fine = sumsBetween(model, model.levels[0], shownVolumes(model, everything), null);
  assert.deepEqual(flowsOf(fine), [[0, 1, 40], [0, 2, 30], [1, 2, 20], [2, 0, 10]]);
  assert.deepEqual([fine.total, fine.elsewhere], [115, 15]);
  const level = model.levels.find(({ x }) => x.length === 2), coarse = sumsBetween(model, level, shownVolumes(model, everything), null), near = level.of[0];
  assert.deepEqual(flowsOf(coarse).map(([, , v]) => v), [50, 10]);
  assert.deepEqual([coarse.inside[near], coarse.starts[near], coarse.ends[near]], [40, 90, 65]);
  assert.equal(coarse.total, 115);
});

test("a chosen zone leaves its own cells, on the map, in the table and in the CSV file", () => {
  const model = modelOf(release()), chosen = choose(model, [1], "b"), volumes = shownVolumes(model, everything);
  assert.deepEqual(flowsOf(sumsBetween(model, model.levels[0], volumes, chosen.mask)), [[0, 1, 40], [1, 2, 20]]);
  const world = { model, state: { ...everything, chosen }, volumes: { of: volumes } }, rows = shownCells(world, "", (text) => text.toLowerCase());
  assert.deepEqual(rows, [3, 1]);
  assert.equal(csvOf(model, rows).split("\n")[1], '"a","around Ely","b","2.1 km east of Ñuñoa",40');
  assert.deepEqual(shownCells({ ...world, state: everything }, "outside", (text) => text.toLowerCase()), [4]);
});

test("means of cells are in the CSV file, and nothing where there is no number", () => {
  const lines = csvOf(modelOf(release({ numbers: { mean_km: pack("f8", [2.5, NaN, 0, 0, 0]) } })), [0, 1]).split("\n");
  assert.match(lines[0], /,"mean_km"$/);
  assert.match(lines[1], /,30,2\.5$/);
  assert.match(lines[2], /,20,""$/);
});

test("a spreadsheet runs nothing of the CSV file", () => {
  const data = release();
  data.zones.code[0] = "=1+1"; data.zones.name = ['say "x"', "@b", "c", "d"];
  assert.match(csvOf(modelOf(data), [0]), /^"'=1\+1","say ""x""","c","c",30$/m);
});

test("places are called by name or town, and found without accents", () => {
  const model = modelOf(release());
  assert.deepEqual([0, 1, 2, 3].map((zone) => labelOf(model, zone)), ["around Ely", "2.1 km east of Ñuñoa", "12 km east of Ñuñoa (2)", "outside the study area"]);
  const index = searchIndex(model);
  assert.deepEqual(search(model, index, " nunoa", 8).map(({ zones }) => zones), [[1, 2]]);
  assert.deepEqual(search(model, index, "C", 8)[0].zones, [2]);
  assert.deepEqual(search(model, index, "nowhere", 8), []);
});

test("slices: all together are their sum, and one step is its own", () => {
  const model = modelOf(release({ slices: { columns: ["time"], time: 0, keys: [["08"], ["09"]], of: pack("u1", [0, 0, 0, 1, 1]) } }));
  assert.deepEqual([...shownVolumes(model, { ...everything, key: [null] })], [30, 20, 10, 40, 15]);
  const steps = stepsOf(model, "trips"), state = { key: [null] };
  assert.deepEqual([steps.labels, [...steps.totals]], [["08", "09"], [60, 55]]);
  steps.show(state, 1);
  assert.deepEqual([...shownVolumes(model, { ...everything, ...state })], [0, 0, 0, 40, 15]);
});

test("an hour of a longer interval is its mean", () => {
  const model = modelOf(release({ times: { from: "00:00", to: "24:00", hours: 24, every: "hour", intervals: [[0, 24, "all day"], [8, 10, "08:00 to 10:00"]], of: pack("u1", [0, 1, 1, 1, 1]) } }));
  assert.deepEqual([...shownVolumes(model, { ...everything, hour: 9 })], [30 / 24, 10, 5, 20, 7.5]);
  assert.deepEqual([...shownVolumes(model, { ...everything, hour: 10 })], [30 / 24, 0, 0, 0, 0]);
  const { labels, totals } = stepsOf(model, "trips");
  assert.deepEqual([labels.length, labels[9]], [24, "09:00 to 10:00"]);
  assert.ok(Math.abs(totals.reduce((a, b) => a + b, 0) - 115) < 1e-9);
});

test("the legend has round widths, none below the smallest flow", () => {
  assert.deepEqual(legendSteps({ most: 7300, lines: [{ volume: 7300 }, { volume: 10 }] }), [5000, 1000, 200]);
  assert.deepEqual(legendSteps({ most: 33, lines: [{ volume: 33 }, { volume: 10 }] }), [20]);
});

test("file names are made of letters", () => assert.equal(fileName("Trips in Ñuñoa, <Chile>", "png"), "Trips-in-Ñuñoa-Chile.png"));

/* ---- small maps ---- */

const square = (x, y, side) => [[x, y, side, 0, 0, side, -side, 0]];

test("rings are differences from point to point, and hold what lies inside", () => {
  const shape = decode(square(10, 0, 10));
  assert.deepEqual([shape.west, shape.east, shape.north, shape.south], [10, 20, 0, 10]);
  assert.ok(inside(shape, 15, 5));
  assert.ok(!inside(shape, 25, 5));
});

test("the first view holds the central 95 % of the volume", () => {
  const near = Array.from({ length: 10 }, (_, i) => ({ west: i, east: i + 1, north: 0, south: 1, volume: 100 }));
  const far = { west: 500, east: 501, north: 0, south: 1, volume: 12 };
  assert.equal(centralOf([...near, far]).east, 10);
  assert.equal(centralOf([...near, { ...far, volume: 13 }]).east, 501);
});

test("class limits are round, and a few huge values do not stretch them", () => {
  const values = [...Array.from({ length: 198 }, (_, i) => 100 * 20 ** (i / 197)), 0.01, 0.01];
  const limits = limitsOf(values);
  assert.ok(limits.length >= 3 && limits[0] >= 100);
  assert.ok(limits.every((v) => ["1", "2", "5"].includes(String(v).replace(/0+$/, ""))));
  assert.equal(namesOf(limits, 0.01, 2000).length, limits.length + 1);
});

test("names of towns do not overlap, and the largest comes first", () => {
  const towns = [["Large", 50, 50], ["Hidden", 52, 52], ["Far", 50, 90], ["Outside", 500, 50]];
  const placed = placedTowns(towns, { x: 0, y: 0, k: 1 }, 200, 120, (text) => 6 * text.length);
  assert.deepEqual(placed.map((t) => t.name), ["Large", "Far"]);
});
