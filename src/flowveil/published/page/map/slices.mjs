/* Which slice is which: the columns that slices differ in, and the axis that bars and slider go along. */

/* The steps of time that labels of one form have; null is all times together. */
const STEPS = { 4: "years", 7: "months", 10: "days", 13: "hours", 16: "times" };
export const stepOf = (label) => (label === null ? 0 : label.length);
export const stepName = (labels) => (labels[0] === null ? "all times together" : STEPS[labels[0].length] || `steps like ${labels[0]}`);
export const labelOf = (value) => (value === null ? "all" : String(value));

/* The axis is time where there is one, else the first column. */
export const axisOf = (slices) => Math.max(slices.time, 0);

/* The values of a column, in the order of the slices; of time, those of one step. */
export function valuesAlong(slices, column, step = null) {
  const values = [...new Set(slices.keys.map((key) => key[column]))];
  return step === null ? values : values.filter((v) => stepOf(v) === step);
}
export const stepsOf = (slices) => (slices.time < 0 ? [] : [...new Set(slices.keys.map((key) => stepOf(key[slices.time])))]);

/* The number of a slice, or -1: none of its cells is published. */
export const sliceAt = (slices, key) => slices.keys.findIndex((own) => own.every((v, i) => v === key[i]));

/* For each value along the axis, the slice that has it and is like the key otherwise. */
export const alongAxis = (slices, key, values) => values.map((value) => {
  const wanted = [...key];
  wanted[axisOf(slices)] = value;
  return sliceAt(slices, wanted);
});
