/* Step 2: what each column is taken for, what was left out, where and when the trips are. */

import { $, count, fill, inWords, make } from "./dom.mjs";
import { desk, isOver, jobsOf, lastDone, resultOf, start, watch } from "./desk.mjs";
import { keep, showAgain } from "./choices.mjs";
import { facts, offer } from "./offering.mjs";

const ROLES = [["", "not used"], ["origin_lat", "origin: latitude"], ["origin_lon", "origin: longitude"], ["destination_lat", "destination: latitude"], ["destination_lon", "destination: longitude"], ["origin_tile", "origin: zone or H3 cell"], ["destination_tile", "destination: zone or H3 cell"], ["person", "who travelled"], ["weight", "weight"], ["trips", "number of trips"]];
const SINGLE = ["origin_tile", "destination_tile", "person", "weight", "trips"];

export function mountColumns(isHere) {
  let shown = "", read = "", asked = "";

  /* Asked for once for each file and each choice of columns. */
  function ask(state) {
    const key = JSON.stringify([state.files, naming(state.choices)]);
    if (key === asked || !state.files.trips || !isHere()) return;
    asked = key;
    /* Another tab, or this one before a reload, may have asked already. */
    const is = (job) => (job.state === "done" || !isOver(job)) && key === keyOf(job, state);
    for (const kind of ["look", "read"]) if (!jobsOf(kind).some(is)) start(kind).catch(() => {});
  }
  const naming = (choices) => Object.fromEntries(["origin", "destination", "resolution", "within", "time", "every", "by", "zones_tile", "zones_lat", "zones_lon", "zones_parent", "zones_name", "zones_levels", "skip_unknown", "wide", "max_dropped", "person_case", ...SINGLE].map((n) => [n, choices[n]]));
  const keyOf = (job, state) => JSON.stringify([state.files, naming(job.asked)]);

  watch(async (state) => {
    $("#map-columns").hidden = !state.files.zones;
    ask(state);
    const look = lastDone("look"), intake = jobsOf("read").at(-1);
    if (look && look.id !== shown) {
      shown = look.id;
      const found = await resultOf(look);
      if (found) showLook(found);
    }
    if (!look) { shown = ""; fill($("#columns tbody")); fill($("#densities")); fill($("#hours")); }
    const failed = jobsOf("look").at(-1);
    if (failed?.state === "failed") { $("#look-problem").hidden = false; $("#look-problem").textContent = inWords(failed.error); }
    if (intake && isOver(intake) && intake.id !== read) {
      read = intake.id;
      if (intake.state === "failed") fill($("#intake"), make("p", inWords(intake.error), "notice"));
      if (intake.state === "done") { const found = await resultOf(intake); if (found) showIntake(found); }
    }
    if (!intake) { read = ""; fill($("#intake")); Object.assign(facts, { people: true, weight: true, region: {} }); }
  });
  addEventListener("hashchange", () => desk.state && ask(desk.state));
  for (const field of document.querySelectorAll("#map-columns [data-choice], #rows [data-choice]")) field.addEventListener("change", () => keep().catch(() => {}));

  function showLook(found) {
    $("#look-problem").hidden = !found.problem;
    $("#look-problem").textContent = inWords(found.problem);
    const roles = rolesByColumn(found.roles);
    fill($("#columns tbody"), ...found.columns.map((column) => {
      const row = make("tr"), shapes = make("td"), cell = make("td"), menu = make("select", "", "", { "aria-label": `What ${column.name} is taken for`, "data-column": column.name });
      for (const shape of column.shapes) shapes.append(make("code", shape, "shape"));
      for (const [value, text] of ROLES) menu.append(new Option(text, value));
      menu.value = roles[column.name] ?? "";
      menu.addEventListener("change", () => change(menu));
      cell.append(menu);
      row.append(make("th", column.name, "", { scope: "row" }), shapes, cell);
      return row;
    }));
    for (const [kind, names] of [["columns", found.columns.map((c) => c.name)], ["map-columns", found.map_columns]]) {
      for (const menu of document.querySelectorAll(`select.${kind}`)) {
        const before = menu.value;
        fill(menu, new Option(kind === "columns" ? "none" : "recognised", ""), ...names.map((name) => new Option(name, name)));
        menu.value = before;
      }
    }
    showAgain();
    /* Matrices of one file are never added up: each is one of its own, as on the command line. */
    if (found.matrices.length > 1 && !desk.state.choices.by && !desk.state.choices.matrix) keep({ by: ["matrix"] }).catch(() => {});
    fill($("#densities"), ...["origin", "destination"].filter((end) => found[`${end}_places`]).map((end) => density(end, found[`${end}_places`])));
    fill($("#hours"), ...(found.hours ? [hours(found.time, found.hours)] : []));
  }
  function rolesByColumn(roles) {
    const by = {};
    for (const end of ["origin", "destination"]) if (roles[end]) { const [lat, lon] = roles[end].split(","); by[lat] = `${end}_lat`; by[lon] = `${end}_lon`; }
    for (const role of SINGLE) if (roles[role]) by[roles[role]] = role;
    return by;
  }
  async function change(changed) {
    const menus = [...document.querySelectorAll("#columns select")];
    if (changed.value) for (const menu of menus) if (menu !== changed && menu.value === changed.value) menu.value = "";
    const at = Object.fromEntries(menus.filter((m) => m.value).map((m) => [m.value, m.dataset.column]));
    const pair = (end) => (at[`${end}_lat`] && at[`${end}_lon`] ? `${at[`${end}_lat`]},${at[`${end}_lon`]}` : null);
    await keep({ origin: pair("origin"), destination: pair("destination"), ...Object.fromEntries(SINGLE.map((role) => [role, at[role] ?? null])), person: at.person ?? "" }).catch(() => {});
  }
  function showIntake(found) {
    Object.assign(facts, { people: found.people, weight: found.weight, region: found.region });
    offer();
    const parts = [make("p", `${count(found.rows)} rows were read.${found.slices ? ` They make ${count(found.slices)} matrices.` : ""}`)];
    const left = Object.entries(found.left_out);
    if (!left.length) parts.push(make("p", "None was left out.", "soft"));
    if (left.length) {
      parts.push(make("p", "Left out:"));
      const list = make("ul");
      for (const [reason, n] of left) list.append(make("li", `${count(n)} ${reason}`));
      parts.push(list);
    }
    for (const [word, n] of Object.entries(found.nobody)) parts.push(make("p", `${count(n)} rows name nobody: ${word}.`));
    for (const note of found.notes) parts.push(make("p", inWords(note), "soft"));
    fill($("#intake"), ...parts);
  }
}

const degrees = (value, above, below) => `${Math.abs(value).toFixed(2)}° ${value < 0 ? below : above}`;

function density(end, places) {
  const figure = make("figure"), canvas = make("canvas", "", "", { role: "img" }), high = places.counts.length / places.wide;
  const [west, south, east, north] = places.box, said = `${end === "origin" ? "Starts" : "Ends"}: ${degrees(south, "N", "S")} to ${degrees(north, "N", "S")}, ${degrees(west, "E", "W")} to ${degrees(east, "E", "W")}`;
  canvas.setAttribute("aria-label", said);
  canvas.width = places.wide * 6; canvas.height = high * 6;
  const context = canvas.getContext("2d"), most = Math.max(...places.counts), style = getComputedStyle(document.documentElement);
  places.counts.forEach((n, i) => {
    if (!n) return;
    const step = 1 + Math.min(5, Math.floor((5.99 * Math.log1p(n)) / Math.log1p(most)));
    context.fillStyle = style.getPropertyValue(`--${end}-${step}`);
    context.fillRect((i % places.wide) * 6, Math.floor(i / places.wide) * 6, 6, 6);
  });
  figure.append(make("figcaption", said, "soft"), canvas);
  if (places.off_the_earth) figure.append(make("p", `${count(places.off_the_earth)} of these points lie off the earth: are the axes swapped?`, "notice"));
  return figure;
}

function hours(name, counts) {
  const figure = make("figure", "", "hours"), columns = make("div", "", "columns", { role: "img", "aria-label": `Trips by the hour in ${name}, most at ${counts.indexOf(Math.max(...counts))} o'clock` });
  const most = Math.max(...counts, 1);
  counts.forEach((n, hour) => { const bar = make("i", "", "", { title: `${hour}:00, ${count(n)}` }); bar.style.height = `${(100 * n) / most}%`; columns.append(bar); });
  figure.append(make("figcaption", `Trips by the hour that stands in ${name}, from 0 to 23`, "soft"), columns);
  return figure;
}
