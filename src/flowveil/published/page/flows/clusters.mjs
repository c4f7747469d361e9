/* Hierarchical clusters of zones: the farther out the map, the more zones are one circle. Computed once. */

/* From one level to the next coarser one the distance between clusters grows by this factor. */
const FACTOR = 1.6;

/* Returns the levels, the finest first. Each has `gap`, the least distance between its clusters in units; `of`, the
   cluster of each zone or -1 for a zone without a place; and for each cluster x, y, weight and `main`, its heaviest zone. */
export function clusterLevels(x, y, weight, nowhere, extent) {
  const n = x.length;
  const of = new Int32Array(n).fill(-1);
  let level = { gap: 0, of, x: [], y: [], weight: [], main: [] };
  for (let i = 0; i < n; i++) {
    if (x[i] === nowhere) continue;
    of[i] = level.x.length;
    level.x.push(x[i]);
    level.y.push(y[i]);
    level.weight.push(weight[i]);
    level.main.push(i);
  }
  const levels = [level];
  for (
    let gap = extent / 1500;
    gap < extent && level.x.length > 1;
    gap *= FACTOR
  ) {
    level = coarser(level, gap);
    levels.push(level);
  }
  return levels;
}

/* The heaviest cluster takes in all that lie nearer than the gap, then the next heaviest that is left. */
function coarser(fine, gap) {
  const n = fine.x.length;
  const parent = new Int32Array(n).fill(-1);
  const next = new Int32Array(n).fill(-1);
  const heads = new Map();
  const cell = (v) => Math.floor(v / gap);
  const key = (cx, cy) => cx * 4194304 + cy;
  for (let i = 0; i < n; i++) {
    const at = key(cell(fine.x[i]), cell(fine.y[i]));
    next[i] = heads.get(at) ?? -1;
    heads.set(at, i);
  }
  const order = Uint32Array.from({ length: n }, (_, i) => i).sort(
    (a, b) => fine.weight[b] - fine.weight[a] || a - b,
  );
  const level = { gap, of: null, x: [], y: [], weight: [], main: [] };
  for (const i of order) {
    if (parent[i] >= 0) continue;
    const id = level.x.length;
    const cx = cell(fine.x[i]);
    const cy = cell(fine.y[i]);
    let total = 0;
    let sx = 0;
    let sy = 0;
    for (let gx = cx - 1; gx <= cx + 1; gx++)
      for (let gy = cy - 1; gy <= cy + 1; gy++) {
        for (let j = heads.get(key(gx, gy)) ?? -1; j >= 0; j = next[j]) {
          if (
            parent[j] >= 0 ||
            Math.hypot(fine.x[j] - fine.x[i], fine.y[j] - fine.y[i]) > gap
          )
            continue;
          parent[j] = id;
          /* A zone without volume still has a place in the mean. */
          const w = Math.max(fine.weight[j], 1e-9);
          total += w;
          sx += w * fine.x[j];
          sy += w * fine.y[j];
        }
      }
    level.x.push(sx / total);
    level.y.push(sy / total);
    level.weight.push(total);
    level.main.push(fine.main[i]);
  }
  level.of = fine.of.map((c) => (c < 0 ? -1 : parent[c]));
  return level;
}

/* The level whose clusters are no farther apart than the gap, or the finest. */
export function levelFor(levels, gap) {
  let found = 0;
  while (found + 1 < levels.length && levels[found + 1].gap <= gap) found++;
  return found;
}
