/* Classes of values, numbers for people, and the words for what is not published. */

export const CLASSES = 6;

/* Made once: a page writes hundreds of numbers, and each way of writing takes long to make. */
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const THREE = new Intl.NumberFormat("en");
const SMALL = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
export const exact = (v) =>
  v === null || v === undefined
    ? "not known"
    : (Math.abs(v) < 100 ? SMALL : WHOLE).format(v);
export const short = (v) => {
  if (v >= 1e6) return +(v / 1e6).toPrecision(3) + " M";
  if (v >= 1e4) return +(v / 1e3).toPrecision(3) + " k";
  return THREE.format(+v.toPrecision(3));
};
export const cap = (text) => text[0].toUpperCase() + text.slice(1);

export const nextRound = (v) => {
  const power = 10 ** Math.floor(Math.log10(v));
  return +[1, 2, 5, 10]
    .map((m) => m * power)
    .find((s) => s >= v * (1 - 1e-9))
    .toPrecision(6);
};

/* Class limits that people can read: 1, 2 or 5 times a power of ten, at most six classes. They are spread over what
   96 % of the zones have: a few huge or tiny values would stretch them until all others have one colour. */
export function limitsOf(values) {
  const positive = values.filter((v) => v > 0).sort((a, b) => a - b);
  if (!positive.length) return [];
  const cut = Math.floor(positive.length * 0.02);
  const low = positive[cut];
  const high = positive[positive.length - 1 - cut];
  if (high / low < 4) {
    const raw = (high - low) / CLASSES;
    if (!(raw > 0)) return [];
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
    const out = [];
    for (
      let v = Math.ceil((low + step / 1e6) / step) * step;
      v < high && out.length < CLASSES - 1;
      v += step
    )
      out.push(+v.toPrecision(12));
    return out;
  }
  const candidates = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high); e++)
    for (const m of [1, 2, 5]) {
      const v = +(m * 10 ** e).toPrecision(6);
      if (v > low && v < high) candidates.push(v);
    }
  /* Values above the range get a separate class. */
  if (candidates.length && positive[positive.length - 1] > 2 * high)
    candidates.push(nextRound(high));
  const out = [];
  const n = Math.min(CLASSES - 1, candidates.length);
  for (let i = 0; i < n; i++)
    out.push(candidates[Math.round(((i + 0.5) * candidates.length) / n - 0.5)]);
  return [...new Set(out)];
}
export const classOf = (limits, v) => {
  let c = 0;
  while (c < limits.length && v >= limits[c]) c++;
  return c;
};
export const spread = (n, steps) =>
  Array.from({ length: n }, (_, i) =>
    n === 1 ? steps - 2 : Math.round((i * (steps - 1)) / (n - 1)),
  );

/* The name of each class, as a legend has it. */
export const namesOf = (limits, low, high) =>
  [...limits, null].map((_, i) => {
    if (!high) return "none";
    if (i === limits.length) return `${short(i ? limits[i - 1] : low)} or more`;
    if (i) return `${short(limits[i - 1])} – ${short(limits[i])}`;
    /* The smallest value is shown where it is a plain number, as k is; a fraction would only confuse. */
    return Number.isInteger(low) && low < 1000 && low * 10 > limits[0]
      ? `${short(low)} – ${short(limits[0])}`
      : `under ${short(limits[0])}`;
  });
