/* The answer at the right: one number with its range, bars of the largest partners, hours, and what to make of it. */

import {
  flowsBetween,
  rangeOf,
  rangeWords,
  roundedTo3,
  sumsAt,
  totalOf,
} from "./estimate.mjs";
import { button, make } from "./panel.mjs";
import { placeChoice, queryOf } from "./question.mjs";

/* Fewer where hours follow below. */
const mostBars = (model) => (model.times.length ? 5 : 8);

/* A number with the range that the cells prove; exact values are in the data attributes. */
function numbered(world, query, kind) {
  const trips = totalOf(world.model, query);
  const range = rangeOf(world.model, query);
  const around = make("span", "", kind, {
    "data-trips": trips.toFixed(2),
    "data-low": range.low,
    "data-high": range.high,
  });
  around.append(
    make("strong", world.number(roundedTo3(trips))),
    make("small", rangeWords(world, range)),
  );
  return { trips, range, around };
}

export function fillAnswer(world, box, act) {
  const { state } = world;
  box.textContent = "";
  if (!state.a) box.append(...largestFlows(world, act));
  else box.append(...chosenAnswer(world, act));
}

function largestFlows(world, act) {
  const { model, state, t } = world;
  const query = queryOf(state);
  const parts = [];
  const whole = { from: null, to: null, hour: state.hour };
  const { around } = numbered(world, whole, "figure");
  parts.push(
    around,
    make("p", t("trips_in_all"), "about"),
    make("h2", t("largest_flows")),
  );
  const rows = flowsBetween(model, query, mostBars(model)).map(
    ({ from, to, trips }) => {
      const a = placeChoice(model, from);
      const b = placeChoice(model, to);
      return {
        label: `${a.label} → ${b.label}`,
        trips,
        query: { from: a.mask, to: b.mask, hour: state.hour },
        act: () => act.change({ way: "from", a, b }),
      };
    },
  );
  parts.push(barsOf(world, rows, null));
  return parts;
}

function chosenAnswer(world, act) {
  const { state, t, model } = world;
  const { a, b, way } = state;
  const query = queryOf(state);
  const parts = [];
  const { around, trips } = numbered(world, query, "figure");
  const named = { place: a.label, other: b?.label ?? "" };
  parts.push(
    around,
    make(
      "p",
      t(
        b
          ? way === "to"
            ? "trips_b_a"
            : "trips_a_b"
          : way === "to"
            ? "trips_end"
            : "trips_start",
        named,
      ),
      "about",
    ),
  );
  const back = { from: query.to, to: query.from, hour: state.hour };
  if (b || way === "between") {
    const other = numbered(world, back, "figure second");
    parts.push(
      other.around,
      make(
        "p",
        t(b ? (way === "to" ? "trips_a_b" : "trips_b_a") : "trips_end", named),
        "about",
      ),
    );
  }
  if (!b) {
    if (way !== "to")
      parts.push(
        ...partners(world, act, query, "destination", trips, "where_go"),
      );
    if (way !== "from")
      parts.push(
        ...partners(
          world,
          act,
          way === "to" ? query : back,
          "origin",
          way === "to" ? trips : totalOf(model, back),
          "where_from",
        ),
      );
  } else {
    const all = totalOf(
      model,
      way === "to"
        ? { from: null, to: a.mask, hour: state.hour }
        : { from: a.mask, to: null, hour: state.hour },
    );
    parts.push(
      make(
        "p",
        t(way === "to" ? "share_of_ends" : "share_of_starts", {
          share: shareWords(world, trips, all),
          place: a.label,
        }),
        "soft",
      ),
    );
  }
  return parts;
}

const shareWords = (world, part, all) =>
  all > 0 ? world.percent(part / all) : "–";

/* The largest partners at one end, each place once; trips within the place are a bar too. */
function partners(world, act, query, end, total, heading) {
  const { model, state, t } = world;
  const sums = sumsAt(model, query, end, model.place);
  const order = [...sums.keys()]
    .filter((place) => sums[place] > 0)
    .sort((x, y) => sums[y] - sums[x] || x - y)
    .slice(0, mostBars(model));
  const rows = order.map((place) => {
    const choice = placeChoice(model, place);
    const sets =
      end === "destination"
        ? { from: query.from, to: choice.mask }
        : { from: choice.mask, to: query.to };
    const within = state.a.place === place;
    return {
      label: within ? t("within", { place: choice.label }) : choice.label,
      trips: sums[place],
      query: { ...sets, hour: state.hour },
      act: () =>
        act.change(
          within ? {} : { b: choice, way: end === "origin" ? "to" : "from" },
        ),
    };
  });
  return [make("h2", t(heading)), barsOf(world, rows, total)];
}

function barsOf(world, rows, total) {
  const list = make("ol", "", "bars");
  const ranges = rows.map(({ query }) => rangeOf(world.model, query));
  const most = Math.max(
    1e-9,
    ...rows.map(({ trips }, i) =>
      Math.max(trips, Math.min(ranges[i].high, 3 * trips)),
    ),
  );
  rows.forEach(({ label, trips, act }, i) => {
    const item = make("li");
    const bar = make("span", "", "part", { "aria-hidden": "true" });
    const fill = make("i");
    const span = make("b");
    const { low, high } = ranges[i];
    const figures = make("span", "", "number", {
      "data-trips": trips.toFixed(2),
      "data-low": low,
      "data-high": high,
    });
    figures.append(
      make("strong", world.number(roundedTo3(trips))),
      make(
        "small",
        total
          ? `${shareWords(world, trips, total)} · ${rangeWords(world, ranges[i])}`
          : rangeWords(world, ranges[i]),
      ),
    );
    fill.style.width = `${(100 * trips) / most}%`;
    span.style.left = `${(100 * low) / most}%`;
    span.style.width = `${Math.max(0.5, (100 * (Math.min(high, most) - low)) / most)}%`;
    bar.append(fill, span);
    const named = button(label, act, "link");
    named.title = label;
    item.append(named, figures, bar);
    list.append(item);
  });
  return list;
}

/* ---- hours ---- */

/* Bars of all times of the question, with an axis; a click shows the time, and again all times. */
export function fillHours(world, box, act) {
  const { model, state, t } = world;
  box.hidden = !model.times.length;
  if (box.hidden) return;
  box.textContent = "";
  const totals = model.times.map((hour) =>
    totalOf(model, { ...queryOf(state), hour }),
  );
  const most = Math.max(...totals, 1e-9);
  /* The mean of the days of a declared period. */
  const days = isClock(model.times) ? model.answer.days : null;
  const words = (trips) => world.number(roundedTo3(trips / (days ?? 1)));
  const chart = make("div", "", "hours", {
    role: "group",
    "aria-label": t("hour"),
  });
  totals.forEach((trips, i) => {
    const label = model.times[i];
    const bar = button(
      "",
      () => act.change({ hour: state.hour === label ? null : label }),
      state.hour === label ? "now" : "",
    );
    bar.setAttribute("aria-label", `${label}: ${words(trips)}`);
    bar.dataset.trips = trips.toFixed(2);
    bar.title = bar.getAttribute("aria-label");
    bar.setAttribute("aria-pressed", state.hour === label);
    const tall = make("i");
    tall.style.height = `${(100 * trips) / most}%`;
    bar.append(tall);
    chart.append(bar);
  });
  const axis = make("div", "", "axis", { "aria-hidden": "true" });
  for (const label of axisLabels(model.times)) axis.append(make("span", label));
  const top = make("div", "", "soft most");
  top.append(
    make("span", words(most), "", { "aria-hidden": "true" }),
    make("span", world.clock),
  );
  box.append(
    make("h2", days ? t("by_hour_a_day", { days }) : t("by_hour")),
    top,
    chart,
    axis,
  );
  if (state.hour !== null) {
    const label = make("label", "", "check");
    const each = make("input", "", "", { type: "checkbox" });
    each.checked = state.each;
    each.addEventListener("change", () => act.change({ each: each.checked }));
    label.append(each, document.createTextNode(t("scale_each")));
    box.append(label);
  }
}
const isClock = (times) => times.every((label) => /^\d\d:\d\d$/.test(label));

/* A day has the axis 0, 6, 12, 18, 24; other times their first and last label. */
export function axisLabels(times) {
  if (isClock(times)) return ["0", "6", "12", "18", "24"];
  return [...new Set([times[0], times[times.length - 1]])];
}

/* ---- may I rely on it? ---- */

export function relyOn(world) {
  const { t, model } = world;
  const box = make("section", "", "rely");
  box.append(make("h2", t("rely")));
  for (const line of model.answer.rely) box.append(make("p", line));
  return box;
}
