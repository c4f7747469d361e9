/* Step 2: three questions, the columns of the places, dropped rows, and where and when trips take place. */

import { $, $$, count, fill, make, pageWords } from "./dom.mjs";
import { isOver, jobsOf, lastDone, onState, resultOf, session, start } from "./session.mjs";
import { keep, recognised, showChoices } from "./choices.mjs";
import { facts, offer } from "./availability.mjs";

const ROLES = [["", "not a place"], ["origin_lat", "origin: latitude"], ["origin_lon", "origin: longitude"], ["destination_lat", "destination: latitude"], ["destination_lon", "destination: longitude"], ["origin_tile", "origin: zone or H3 cell"], ["destination_tile", "destination: zone or H3 cell"]];
const TILES = ["origin_tile", "destination_tile"];
const ANSWERS = ["person", "trips", "weight"];
/* Choices that decide how the input is read. */
const READING = ["origin", "destination", "resolution", "within", "time", "every", "timezone", "time_format", "by", "zones_tile", "zones_lat", "zones_lon", "zones_parent", "zones_name", "zones_levels", "skip_unknown", "wide", "max_dropped", "person_case", ...TILES, ...ANSWERS];
const readingChoices = (choices) => Object.fromEntries(READING.map((name) => [name, choices[name]]));

export function mountColumns(isHere) {
  let shown = "", read = "", requested = "";

  /* The hours of a time column are shown before a step is chosen. */
  const inspected = (choices) => (choices.time && !choices.every ? { ...choices, every: "hour" } : choices);

  /* Inspects and reads once for each file and each set of reading choices. */
  function request(state) {
    if (!state.files.trips || !isHere()) return;
    const wanted = { inspect: inspected(state.choices), read: state.choices };
    const key = JSON.stringify([state.files, Object.values(wanted).map(readingChoices)]);
    if (key === requested) return;
    requested = key;
    for (const [kind, choices] of Object.entries(wanted)) {
      /* Another tab, or this one before a reload, may have started it. */
      const fits = (job) => (job.state === "done" || !isOver(job)) && JSON.stringify(readingChoices(job.request)) === JSON.stringify(readingChoices(choices));
      if (!jobsOf(kind).some(fits)) start(kind, choices === state.choices ? undefined : choices).catch(() => {});
    }
  }

  onState(async (state) => {
    $("#map-columns").hidden = !state.files.zones;
    request(state);
    const inspect = lastDone("inspect"), intake = jobsOf("read").at(-1);
    if (inspect && inspect.id !== shown) {
      shown = inspect.id;
      const found = await resultOf(inspect);
      if (found) showInspection(found);
    }
    /* Menus of another file are no answers for this one. */
    if (!inspect) { shown = ""; for (const menu of $$("select.columns")) fill(menu); fill($("#columns tbody")); fill($("#densities")); fill($("#hours")); for (const name of ANSWERS) delete recognised[name]; }
    const failed = jobsOf("inspect").at(-1);
    if (failed?.state === "failed") showProblem(failed.error);
    if (intake && isOver(intake) && intake.id !== read) {
      read = intake.id;
      if (intake.state === "failed") fill($("#intake"), make("p", pageWords(intake.error), "notice"));
      if (intake.state === "done") { const found = await resultOf(intake); if (found) showIntake(found); }
    }
    if (!intake) { read = ""; fill($("#intake")); Object.assign(facts, { people: true, weight: true }); }
  });
  addEventListener("hashchange", () => session.state && request(session.state));
  for (const field of $$("section[data-step=columns] [data-choice]")) {
    field.addEventListener("change", () => { offer(); keep().then(() => request(session.state)).catch(() => {}); });
  }

  function showProblem(text) {
    $("#inspect-problem").hidden = !text;
    $("#inspect-problem").textContent = pageWords(text);
  }

  function showInspection(found) {
    showProblem(found.problem);
    const roles = rolesByColumn(found.roles);
    fill($("#columns tbody"), ...found.columns.map((column) => {
      const row = make("tr"), shapes = make("td"), cell = make("td"), menu = make("select", "", "", { "aria-label": `Place in ${column.name}`, "data-column": column.name });
      for (const shape of column.shapes) shapes.append(make("code", shape, "shape"));
      for (const [value, text] of ROLES) menu.append(new Option(text, value));
      menu.value = roles[column.name] ?? "";
      menu.addEventListener("change", () => changePlace(menu));
      cell.append(menu);
      row.append(make("th", column.name, "", { scope: "row" }), shapes, cell);
      return row;
    }));
    fillMenus(found);
    for (const name of ANSWERS) if (found.roles[name]) recognised[name] = found.roles[name]; else delete recognised[name];
    if (!found.problem && !found.roles.person) recognised.person = "";
    showChoices();
    offer();
    /* Matrices of one file are never added: each is a slice, as on the command line. */
    if (found.matrices.length > 1 && !session.state.choices.by && !session.state.choices.matrix) keep({ by: ["matrix"] }).catch(() => {});
    fill($("#densities"), ...["origin", "destination"].filter((end) => found[`${end}_places`]).map((end) => density(end, found[`${end}_places`])));
    fill($("#hours"), ...(found.hours ? [hours(found.time, found.hours)] : []));
  }
  function fillMenus(found) {
    const names = found.columns.map((c) => c.name), likely = (role) => found.columns.filter((c) => c.maybe === role).map((c) => c.name);
    for (const menu of $$("select.columns")) {
      const before = menu.value, first = likely(menu.dataset.choice), ordered = [...first, ...names.filter((name) => !first.includes(name))];
      fill(menu, ...(menu.dataset.kind === "person" ? [new Option("Please choose", "?")] : []), new Option(menu.dataset.none, ""), ...ordered.map((name) => new Option(name, name)));
      menu.value = before;
    }
    for (const menu of $$("select.map-columns")) {
      const before = menu.value;
      fill(menu, new Option("recognised", ""), ...found.map_columns.map((name) => new Option(name, name)));
      menu.value = before;
    }
  }
  function rolesByColumn(roles) {
    const by = {};
    for (const end of ["origin", "destination"]) if (roles[end]) { const [lat, lon] = roles[end].split(","); by[lat] = `${end}_lat`; by[lon] = `${end}_lon`; }
    for (const role of TILES) if (roles[role]) by[roles[role]] = role;
    return by;
  }
  async function changePlace(changed) {
    const menus = $$("#columns select");
    if (changed.value) for (const menu of menus) if (menu !== changed && menu.value === changed.value) menu.value = "";
    const at = Object.fromEntries(menus.filter((m) => m.value).map((m) => [m.value, m.dataset.column]));
    const pair = (end) => (at[`${end}_lat`] && at[`${end}_lon`] ? `${at[`${end}_lat`]},${at[`${end}_lon`]}` : null);
    await keep({ origin: pair("origin"), destination: pair("destination"), ...Object.fromEntries(TILES.map((role) => [role, at[role] ?? null])) }).catch(() => {});
  }
  function showIntake(found) {
    Object.assign(facts, { people: found.people, weight: found.weight });
    offer();
    const parts = [make("p", `${count(found.rows)} rows were read.${found.slices ? ` They make ${count(found.slices)} matrices.` : ""}`)];
    const dropped = Object.entries(found.dropped);
    if (!dropped.length) parts.push(make("p", "No row was dropped.", "soft"));
    if (dropped.length) {
      parts.push(make("p", "Dropped:"));
      const list = make("ul");
      for (const [reason, n] of dropped) list.append(make("li", `${count(n)} ${reason}`));
      parts.push(list);
    }
    for (const [word, n] of Object.entries(found.without_person)) parts.push(make("p", `${count(n)} rows have no person: ${word}.`));
    for (const note of found.notes) parts.push(make("p", pageWords(note), "soft"));
    fill($("#intake"), ...parts);
  }
}

const degrees = (value, above, below) => `${Math.abs(value).toFixed(2)}° ${value < 0 ? below : above}`;

/* A map of trip ends, to scale: a kilometre has the same length in both directions. */
function density(end, places) {
  const figure = make("figure"), canvas = make("canvas", "", "", { role: "img" }), high = places.counts.length / places.wide;
  const [west, south, east, north] = places.box, caption = `${end === "origin" ? "Starts" : "Ends"}: ${degrees(south, "N", "S")} to ${degrees(north, "N", "S")}, ${degrees(west, "E", "W")} to ${degrees(east, "E", "W")}`;
  const ratio = (north - south) / ((east - west) * Math.max(0.05, Math.cos((Math.PI * (south + north)) / 360)));
  canvas.setAttribute("aria-label", caption);
  canvas.width = Math.round(Math.min(600, 460 / ratio)); canvas.height = Math.round(canvas.width * ratio);
  const context = canvas.getContext("2d"), most = Math.max(...places.counts), style = getComputedStyle(document.documentElement);
  const x = (i) => Math.round((i * canvas.width) / places.wide), y = (i) => Math.round((i * canvas.height) / high);
  places.counts.forEach((n, i) => {
    if (!n) return;
    const step = 1 + Math.min(5, Math.floor((5.99 * Math.log1p(n)) / Math.log1p(most))), column = i % places.wide, row = Math.floor(i / places.wide);
    context.fillStyle = style.getPropertyValue(`--${end}-${step}`);
    context.fillRect(x(column), y(row), Math.max(1, x(column + 1) - x(column)), Math.max(1, y(row + 1) - y(row)));
  });
  figure.append(make("figcaption", caption, "soft"), canvas);
  if (places.off_the_earth) figure.append(make("p", `${count(places.off_the_earth)} of these points are off the earth: are the axes swapped?`, "notice"));
  return figure;
}

function hours(name, found) {
  const { counts, zone, needs_timezone: needs } = found, most = Math.max(...counts, 1);
  const figure = make("figure", "", "hours"), columns = make("div", "", "columns", { role: "img", "aria-label": `Trips by hour of ${name}, most at ${counts.indexOf(Math.max(...counts))} o'clock` });
  counts.forEach((n, hour) => { const bar = make("i", "", "", { title: `${hour}:00, ${count(n)}` }); bar.style.height = `${(100 * n) / most}%`; columns.append(bar); });
  const where = needs ? ", in UTC: choose the time zone" : zone ? `, in ${zone}` : "";
  figure.append(make("figcaption", `Trips by hour of ${name}, from 0 to 23${where}`, "soft"), columns);
  return figure;
}
