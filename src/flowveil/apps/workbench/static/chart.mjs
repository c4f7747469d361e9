/* The planner's error against k: a line for each method, the present choice marked. Both axes are logarithmic. */

import { draw, make, share } from "./dom.mjs";

const WIDTH = 860;
const HEIGHT = 340;
const LEFT = 64;
const RIGHT = 130;
const TOP = 16;
const BOTTOM = 46;
const ROUND = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1];
/* Smallest distance between the names of two lines. */
const APART = 17;

const text = (point) =>
  `${point.method}, k = ${point.k}: ${share(point.error)}`;

function scales(ks, errors) {
  const known = errors.filter((error) => error > 0);
  const low =
    ROUND.findLast((tick) => tick <= Math.min(...known, 0.5)) ?? ROUND[0];
  const high = ROUND.find((tick) => tick >= Math.max(...known, low * 2)) ?? 1;
  const ticks = ROUND.filter((tick) => tick >= low && tick <= high);
  const along = (value, first, last) =>
    Math.log(value / first) / Math.log(last / first);
  const [least, most] = [Math.min(...ks), Math.max(...ks)];
  return {
    ticks,
    x: (k) => LEFT + (WIDTH - LEFT - RIGHT) * along(k, least, most),
    y: (error) =>
      HEIGHT -
      BOTTOM -
      (HEIGHT - TOP - BOTTOM) * along(Math.max(error, low), low, high),
  };
}

function axes(ks, { x, y, ticks }) {
  const parts = [];
  for (const tick of ticks) {
    const at = { x1: LEFT, x2: WIDTH - RIGHT, y1: y(tick), y2: y(tick) };
    parts.push(draw("line", { class: "axis", ...at }));
    parts.push(
      draw(
        "text",
        { x: LEFT - 10, y: y(tick) + 4, "text-anchor": "end" },
        share(tick),
      ),
    );
  }
  for (const k of ks)
    parts.push(
      draw(
        "text",
        { x: x(k), y: HEIGHT - BOTTOM + 20, "text-anchor": "middle" },
        String(k),
      ),
    );
  const middle = (LEFT + WIDTH - RIGHT) / 2;
  parts.push(
    draw("text", { x: middle, y: HEIGHT - 6, "text-anchor": "middle" }, "k"),
  );
  return parts;
}

function dot(point, isNow, { x, y }, choose) {
  const circle = draw("circle", {
    class: isNow ? "point now" : "point",
    cx: x(point.k),
    cy: y(point.error),
    r: isNow ? 9 : 7,
    tabindex: 0,
    role: "button",
    "aria-label": text(point),
    "aria-pressed": isNow,
    "data-point": `${point.method} ${point.k}`,
  });
  circle.append(draw("title", {}, text(point)));
  circle.addEventListener("click", () => choose(point));
  circle.addEventListener("keydown", (e) => {
    if (e.key !== "Enter" && e.key !== " ") return;
    e.preventDefault();
    choose(point);
  });
  return circle;
}

/* Elements of the chart. `present` is the choice that is shown: its method, k (none for noise) and error. */
export function chart(found, present, choose) {
  const points = found.points.filter((point) => point.error !== null);
  if (!points.length) {
    const none = found.points.length
      ? "No method can be compared here."
      : "Computing …";
    return [make("p", none, "soft")];
  }
  const marked = present?.error === null ? null : present;
  const ks = [...new Set([...found.ks, ...(marked?.k ? [marked.k] : [])])].sort(
    (a, b) => a - b,
  );
  const at = scales(
    ks,
    [...points, ...(marked ? [marked] : [])].map((point) => point.error),
  );
  const svg = draw("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    role: "group",
    "aria-label": "Share of the trips that a planner misplaces, against k",
  });
  svg.append(...axes(found.ks, at));
  const names = [];
  const isChosen = (method) => Number(marked?.method === method);
  /* The chosen method is drawn last, above the others. */
  const order = found.methods.toSorted((a, b) => isChosen(a) - isChosen(b));
  order.forEach((method) => {
    const number = found.methods.indexOf(method);
    const own = points.filter((point) => point.method === method);
    if (!own.length) return;
    own.sort((a, b) => a.k - b.k);
    const corners = own
      .map((point) => `${at.x(point.k)},${at.y(point.error)}`)
      .join(" ");
    const kind = `curve line-${number % 5}${marked?.method === method ? " chosen" : ""}`;
    svg.append(draw("polyline", { class: kind, points: corners }));
    for (const point of own) {
      const isNow = marked?.method === method && marked.k === point.k;
      svg.append(dot(point, isNow, at, choose));
    }
    names.push({
      method,
      y: at.y(own.at(-1).error) + 4,
      x: at.x(own.at(-1).k) + 16,
    });
  });
  names.sort((a, b) => a.y - b.y);
  names.forEach((name, i) => {
    if (i) name.y = Math.max(name.y, names[i - 1].y + APART);
    svg.append(
      draw("text", { class: "name", x: name.x, y: name.y }, name.method),
    );
  });
  if (
    marked &&
    marked.k &&
    !points.some((p) => p.method === marked.method && p.k === marked.k)
  )
    svg.append(dot(marked, true, at, () => {}));
  if (marked && !marked.k) {
    const y = at.y(marked.error);
    svg.append(
      draw("line", {
        class: "noisy",
        x1: LEFT,
        x2: WIDTH - RIGHT,
        y1: y,
        y2: y,
      }),
    );
    svg.append(
      draw(
        "text",
        { class: "name", x: WIDTH - RIGHT + 8, y: y + 4 },
        marked.method,
      ),
    );
  }
  return [svg, table(points, found)];
}

function table(points, found) {
  const around = make("details");
  const rows = make("table", "", "narrow");
  const head = make("tr");
  head.append(
    make("td"),
    ...found.ks.map((k) => make("th", `k = ${k}`, "", { scope: "col" })),
  );
  rows.append(head);
  for (const method of found.methods) {
    const row = make("tr");
    row.append(make("th", method, "", { scope: "row" }));
    for (const k of found.ks) {
      const point = points.find((one) => one.method === method && one.k === k);
      row.append(make("td", point ? share(point.error) : "none", "number"));
    }
    rows.append(row);
  }
  around.append(make("summary", "The numbers"), rows);
  return around;
}
