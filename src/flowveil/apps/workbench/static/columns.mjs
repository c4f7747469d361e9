/* Step 2: where trips lie, three questions, the columns of the places, and dropped rows. */

import { $, $$, count, fill, listOf, make, pageWords } from "./dom.mjs";
import {
  fits,
  isOver,
  isUnderWay,
  jobsOf,
  lastDone,
  onState,
  resultOf,
  session,
  startOnce,
} from "./session.mjs";
import { keep, questions, recognised, showChoices } from "./choices.mjs";

const ENDS = ["origin", "destination"];
const PLACES = [
  ["", "not a place"],
  ["origin_lat", "origin: latitude"],
  ["origin_lon", "origin: longitude"],
  ["destination_lat", "destination: latitude"],
  ["destination_lon", "destination: longitude"],
  ["origin_tile", "origin: zone or H3 cell"],
  ["destination_tile", "destination: zone or H3 cell"],
];
const TILES = ["origin_tile", "destination_tile"];
const ANSWERS = ["person", "trips", "weight"];

export function mountColumns(isHere) {
  let shown = "";
  let read = "";
  let inspecting = "";

  /* Inspects once for each file and each set of reading choices, and reads when all questions are answered. */
  function request(state) {
    if (!state.files.trips || !isHere()) return;
    const key = JSON.stringify([state.files, state.keys.reading]);
    if (key !== inspecting && !isUnderWay("inspect", "reading")) {
      inspecting = key;
      startOnce("inspect", "reading");
    }
    const inspected = jobsOf("inspect").filter(fits("reading")).at(-1);
    if (!inspected || !isOver(inspected) || state.unanswered.length) return;
    if (!jobsOf("read").some(fits("reading"))) startOnce("read", "reading");
  }

  onState(async (state) => {
    $("#map-columns").hidden = !state.files.zones;
    for (const name of ["person", "row"])
      $(`#question-${name}`).classList.toggle(
        "unanswered",
        state.unanswered.includes(name),
      );
    request(state);
    const inspect = lastDone("inspect");
    if (inspect && inspect.id !== shown) {
      shown = inspect.id;
      const found = await resultOf(inspect);
      if (found) showInspection(found);
    }
    if (!inspect) forget();
    const failed = jobsOf("inspect").at(-1);
    if (failed?.state === "failed") showProblem(failed.error);
    const intake = jobsOf("read").at(-1);
    if (intake && isOver(intake) && intake.id !== read) {
      read = intake.id;
      if (intake.state === "failed")
        fill($("#intake"), make("p", pageWords(intake.error), "notice"));
      const found = intake.state === "done" && (await resultOf(intake));
      if (found) showIntake(found);
    }
    if (!intake) {
      read = "";
      fill($("#intake"));
    }
  });
  addEventListener("hashchange", () => session.state && request(session.state));
  for (const field of $$("section[data-step=columns] [data-choice]"))
    field.addEventListener("change", () =>
      keep()
        .then(() => request(session.state))
        .catch(() => {}),
    );

  /* Menus of another file are no answers for this one. */
  function forget() {
    shown = inspecting = "";
    questions.row = false;
    for (const menu of $$("select.columns")) fill(menu);
    for (const part of ["#columns tbody", "#densities", "#hours", "#place"])
      fill($(part));
    $("#place").hidden = true;
    for (const name of ANSWERS) delete recognised[name];
  }

  function showProblem(text) {
    const at = $("#inspect-problem");
    /* A column that looks like a person is a question below, not a problem. */
    at.hidden = !text || session.state.unanswered.includes("person");
    at.textContent = pageWords(text);
  }

  function showInspection(found) {
    questions.row = found.counts.length > 0;
    fill($("#columns tbody"), ...rowsOf(found));
    fillMenus(found);
    for (const name of ANSWERS)
      if (found.roles[name]) recognised[name] = found.roles[name];
      else delete recognised[name];
    showChoices();
    showProblem(found.problem);
    /* Matrices of one file are never added: each is a slice, as on the command line. */
    const { by, matrix } = session.state.choices;
    if (found.matrices.length > 1 && !by && !matrix)
      keep({ by: ["matrix"] }).catch(() => {});
    showPlaces(ENDS.map((end) => [end, found[`${end}_places`]]));
    const zone = ENDS.map((end) => found[`${end}_places`]?.timezone).find(
      Boolean,
    );
    if (zone) $("[data-choice=timezone]").placeholder = zone;
    fill($("#hours"), ...(found.hours ? [hours(found.time, found.hours)] : []));
    fill(
      $("#looks"),
      ...(found.vehicles.length ? [vehicleNote(found.vehicles)] : []),
    );
    fill($("#row-note"), ...(questions.row ? [rowNote(found.counts)] : []));
  }
  function showPlaces(ends) {
    const known = ends.filter(([, places]) => places);
    if (!known.length) return;
    const place = known[0][1].place;
    fill($("#place"), ...(place ? [`Around ${place}`] : []));
    $("#place").hidden = !place;
    fill(
      $("#densities"),
      ...known.map(([end, places]) => density(end, places)),
    );
  }

  function rowsOf(found) {
    const roles = placesByColumn(found.roles);
    return found.columns.map((column) => {
      const row = make("tr");
      const shapes = make("td");
      const cell = make("td");
      const label = {
        "aria-label": `Place in ${column.name}`,
        "data-column": column.name,
      };
      const menu = make("select", "", "", label);
      for (const shape of column.shapes)
        shapes.append(make("code", shape, "shape"));
      for (const [value, text] of PLACES) menu.append(new Option(text, value));
      menu.value = roles[column.name] ?? "";
      menu.addEventListener("change", () => changePlace(menu));
      cell.append(menu);
      row.append(make("th", column.name, "", { scope: "row" }), shapes, cell);
      return row;
    });
  }
  function placesByColumn(roles) {
    const by = {};
    for (const end of ENDS)
      if (roles[end]) {
        const [lat, lon] = roles[end].split(",");
        by[lat] = `${end}_lat`;
        by[lon] = `${end}_lon`;
      }
    for (const role of TILES) if (roles[role]) by[roles[role]] = role;
    return by;
  }

  function fillMenus(found) {
    const names = found.columns.map((column) => column.name);
    for (const menu of $$("select.columns")) {
      const before = menu.value;
      const groups = groupsFor(menu.dataset.choice, found);
      const first = groups.flatMap(([, own]) => own);
      const rest = names.filter((name) => !first.includes(name));
      const none = new Option(menu.dataset.none, "");
      const asks =
        menu.dataset.kind === "person" ||
        (menu.dataset.kind === "row" && questions.row);
      fill(menu, ...(asks ? [new Option("Please choose", "?")] : []), none);
      for (const [label, own] of [...groups, ["Other columns", rest]]) {
        if (!own.length) continue;
        const group = make("optgroup", "", "", { label });
        group.append(...own.map((name) => new Option(name, name)));
        menu.append(group);
      }
      menu.value = before;
    }
    for (const menu of $$("select.map-columns")) {
      const before = menu.value;
      fill(
        menu,
        new Option("recognised", ""),
        ...found.map_columns.map((name) => new Option(name, name)),
      );
      menu.value = before;
    }
  }
  function groupsFor(choice, found) {
    if (choice === "person")
      return [
        [
          "People",
          [
            ...(found.roles.person ? [found.roles.person] : []),
            ...found.persons,
          ],
        ],
        ["Vehicles, not the people in them", found.vehicles],
      ];
    if (choice === "trips") return [["Numbers", found.counts]];
    const likely = found.columns.filter((column) => column.maybe === choice);
    return [["Likely", likely.map((column) => column.name)]];
  }
  const vehicleNote = (vehicles) =>
    make(
      "p",
      `${vehicles.join(", ")} identifies vehicles. Chosen here, it protects vehicles, not the people in them.`,
      "soft",
    );
  const rowNote = (counts) =>
    make(
      "p",
      `Each pair of places occurs once, and ${counts.join(", ")} ${counts.length > 1 ? "hold" : "holds"} numbers: is a row one trip, or a number of trips?`,
    );

  async function changePlace(changed) {
    const menus = $$("#columns select");
    if (changed.value)
      for (const menu of menus)
        if (menu !== changed && menu.value === changed.value) menu.value = "";
    const at = Object.fromEntries(
      menus
        .filter((menu) => menu.value)
        .map((menu) => [menu.value, menu.dataset.column]),
    );
    const pair = (end) =>
      at[`${end}_lat`] && at[`${end}_lon`]
        ? `${at[`${end}_lat`]},${at[`${end}_lon`]}`
        : null;
    const tiles = Object.fromEntries(
      TILES.map((role) => [role, at[role] ?? null]),
    );
    await keep({
      origin: pair("origin"),
      destination: pair("destination"),
      ...tiles,
    }).catch(() => {});
  }

  function showIntake(found) {
    const by = found.dimensions.join(" and ");
    let made = by ? ` They are published by ${by}.` : "";
    if (found.slices) made = ` They make ${count(found.slices)} matrices.`;
    const parts = [make("p", `${count(found.rows)} rows were read.${made}`)];
    const dropped = Object.entries(found.dropped).map(
      ([reason, n]) => `${count(n)} ${reason}`,
    );
    if (dropped.length) parts.push(make("p", "Dropped:"), listOf(dropped));
    else parts.push(make("p", "No row was dropped.", "soft"));
    for (const [word, n] of Object.entries(found.without_person))
      parts.push(make("p", `${count(n)} rows have no person: ${word}.`));
    for (const note of found.notes)
      parts.push(make("p", pageWords(note), "soft"));
    fill($("#intake"), ...parts);
    if (!$("#densities").children.length)
      showPlaces([["origin", found.places]]);
  }
}

const degrees = (value, above, below) =>
  `${Math.abs(value).toFixed(2)}° ${value < 0 ? below : above}`;

/* A map of trip ends, to scale: a kilometre has the same length in both directions. */
function density(end, places) {
  const figure = make("figure");
  const canvas = make("canvas", "", "", { role: "img" });
  const high = places.counts.length / places.wide;
  const [west, south, east, north] = places.box;
  const name = end === "origin" ? "Starts" : "Ends";
  const caption = `${name}: ${degrees(south, "N", "S")} to ${degrees(north, "N", "S")}, ${degrees(west, "E", "W")} to ${degrees(east, "E", "W")}`;
  const narrowing = Math.max(0.05, Math.cos((Math.PI * (south + north)) / 360));
  const ratio = (north - south) / ((east - west) * narrowing);
  canvas.setAttribute("aria-label", caption);
  canvas.width = Math.round(Math.min(420, 320 / ratio));
  canvas.height = Math.round(canvas.width * ratio);
  const context = canvas.getContext("2d");
  const most = Math.max(...places.counts);
  const style = getComputedStyle(document.documentElement);
  const x = (i) => Math.round((i * canvas.width) / places.wide);
  const y = (i) => Math.round((i * canvas.height) / high);
  places.counts.forEach((n, i) => {
    if (!n) return;
    const step =
      1 + Math.min(5, Math.floor((5.99 * Math.log1p(n)) / Math.log1p(most)));
    const column = i % places.wide;
    const row = Math.floor(i / places.wide);
    const wide = Math.max(1, x(column + 1) - x(column));
    context.fillStyle = style.getPropertyValue(`--${end}-${step}`);
    context.fillRect(x(column), y(row), wide, Math.max(1, y(row + 1) - y(row)));
  });
  figure.append(make("figcaption", caption, "soft"), canvas);
  if (places.off_the_earth) {
    const off = `${count(places.off_the_earth)} of these points are off the earth: are the axes swapped?`;
    figure.append(make("p", off, "notice"));
  }
  return figure;
}

function hours(name, found) {
  const { counts, zone, needs_timezone: needs } = found;
  const most = Math.max(...counts, 1);
  const figure = make("figure", "", "hours");
  const busiest = counts.indexOf(Math.max(...counts));
  const columns = make("div", "", "columns", {
    role: "img",
    "aria-label": `Trips by hour of ${name}, most at ${busiest} o'clock`,
  });
  counts.forEach((n, hour) => {
    const bar = make("i", "", "", { title: `${hour}:00, ${count(n)}` });
    bar.style.height = `${(100 * n) / most}%`;
    columns.append(bar);
  });
  let where = "";
  if (needs) where = ", in UTC: choose the time zone";
  else if (zone) where = `, in ${zone}`;
  figure.append(
    make(
      "figcaption",
      `Trips by hour of ${name}, from 0 to 23${where}`,
      "soft",
    ),
    columns,
  );
  return figure;
}
