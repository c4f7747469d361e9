/* Which part of a release is shown: an hour or a day with the slider under the map, and values of other columns. */

import { exact, groupsOf } from "./model.mjs";
import { button, make } from "./panel.mjs";

/* Milliseconds that each step stays while time plays. */
const PACE = 900;

/* The steps of time: labels, how much is published in each, and how a step is shown. Null if cells have no time. */
export function stepsOf(model, basis) {
  const { slices, times } = model.data;
  const volume = model.volume[basis];
  if (slices && slices.time >= 0) {
    const labels = [...new Set(slices.keys.map((key) => key[slices.time]))];
    const place = new Map(labels.map((label, i) => [label, i]));
    const totals = new Float64Array(labels.length);
    const step = slices.keys.map((key) => place.get(key[slices.time]));
    for (let i = 0; i < volume.length; i++)
      totals[step[model.group[i]]] += volume[i];
    return {
      labels,
      totals,
      show: (state, i) => {
        state.key[slices.time] = i === null ? null : labels[i];
      },
    };
  }
  if (!times) return null;
  /* Intervals differ in length: a step is an hour, or at most 400 steps of a longer time. */
  const width = Math.max(1, Math.ceil(times.hours / 400));
  const n = Math.ceil(times.hours / width);
  const totals = new Float64Array(n);
  for (let i = 0; i < volume.length; i++) {
    const [from, to] = times.intervals[model.group[i]];
    for (let s = Math.floor(from / width); s < n && s * width < to; s++)
      totals[s] += volume[i] / (to - from);
  }
  return {
    labels: Array.from({ length: n }, (_, i) => hourLabel(times, i * width)),
    totals,
    show: (state, i) => {
      state.hour = i === null ? null : i * width;
    },
  };
}

const DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
function hourLabel(times, hour) {
  const clock = (h) => `${String(h % 24).padStart(2, "0")}:00`;
  if (times.every === "hour") return `${clock(hour)} to ${clock(hour + 1)}`;
  if (times.every === "weekday-hour")
    return `${DAYS[Math.floor(hour / 24)]} ${clock(hour)}`;
  const first = new Date(
    times.from.length === 7
      ? `${times.from}-01T00:00Z`
      : times.from.length === 10
        ? `${times.from}T00:00Z`
        : `${times.from}Z`,
  );
  return new Date(first.getTime() + hour * 3600000)
    .toISOString()
    .slice(0, 16)
    .replace("T", " ");
}

/* Selects for slice columns other than time, each with all values together. Of a folded column, the groups of its tree
   below the root that have cells, indented by their depth. */
export function mountPickers(world, place, changed) {
  const { slices } = world.model.data;
  if (!slices) return;
  slices.columns.forEach((name, column) => {
    if (column === slices.time) return;
    const label = make("label", name);
    const select = make("select");
    const tree = slices.trees?.[column];
    let values = [...new Set(slices.keys.map((key) => key[column]))];
    if (tree) {
      const held = new Set(
        values.flatMap((value) => groupsOf(slices, column, value)),
      );
      values = tree
        .filter(([value, parent]) => parent !== null && held.has(value))
        .map(([value]) => value);
    }
    const indent = (value) =>
      "\u2003".repeat(tree ? groupsOf(slices, column, value).length - 2 : 0);
    select.append(
      make("option", "all", "", { value: "" }),
      ...values.map((value, i) =>
        make("option", indent(value) + value, "", { value: i }),
      ),
    );
    select.addEventListener("change", () => {
      world.state.key[column] =
        select.value === "" ? null : values[+select.value];
      changed();
    });
    label.append(select);
    place.append(label);
  });
}

/* The slider under the map: bars of what each step has, all times together, and play. */
export function mountTime(world, place, changed) {
  const steps = stepsOf(world.model, world.state.basis);
  place.hidden = !steps;
  if (!steps) return { now: () => null };
  const n = steps.labels.length;
  const most = steps.totals.reduce((m, v) => Math.max(m, v), 0) || 1;
  let at = null;
  let playing = 0;
  const slider = make("input", "", "", {
    type: "range",
    min: 0,
    max: n - 1,
    value: 0,
    "aria-label": "Time",
  });
  const when = make("output", "All times together");
  const chart = make("div", "", "steps", { "aria-hidden": "true" });
  const all = button("All times", () => {
    stop();
    go(null);
  });
  const play = button("▶", () => (playing ? stop() : start()));
  const columns = [...steps.totals].map((total) => {
    const i = make("i");
    i.style.height = `${(100 * Math.max(total, 0)) / most}%`;
    return i;
  });
  chart.append(...columns);
  const name = (words) => {
    play.setAttribute("aria-label", words);
    play.title = words;
  };
  name("Play");
  function go(i) {
    at = i;
    steps.show(world.state, i);
    columns.forEach((c, n) => c.classList.toggle("now", n === i));
    when.textContent = i === null ? "All times together" : steps.labels[i];
    slider.setAttribute(
      "aria-valuetext",
      i === null
        ? "all times together"
        : `${steps.labels[i]}: ${exact(steps.totals[i])} ${world.state.basis}`,
    );
    if (i !== null) slider.value = i;
    all.setAttribute("aria-pressed", i === null);
    place.classList.toggle("all", i === null);
    changed();
  }
  function start() {
    name("Pause");
    play.textContent = "❚❚";
    const next = () => go(at === null ? 0 : (at + 1) % n);
    playing = setInterval(next, PACE);
    next();
  }
  function stop() {
    clearInterval(playing);
    playing = 0;
    name("Play");
    play.textContent = "▶";
  }
  slider.addEventListener("input", () => {
    stop();
    go(+slider.value);
  });
  /* A click on the thumb's own place changes no value, but leaves all times. */
  slider.addEventListener("pointerup", () => {
    if (at === null) go(+slider.value);
  });
  const track = make("div", "", "track");
  track.append(chart, slider);
  place.append(play, all, track, when);
  all.setAttribute("aria-pressed", "true");
  place.classList.add("all");
  return { now: () => (at === null ? null : steps.labels[at]) };
}
