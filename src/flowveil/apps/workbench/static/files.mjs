/* Step 1: where trips come from, a map, the settings of last time, and the ledger. */

import { $, $$, button, fill, make, size } from "./dom.mjs";
import { get, onState, post, session, setProblem, upload } from "./session.mjs";

const TITLES = {
  trips: "Trips",
  zones: "Maps",
  recipe: "Recipes",
  ledger: "Ledgers",
};

export function mountFiles(go) {
  let waiting = false;
  let misplaced = null;

  for (const role of ["trips", "zones", "release"])
    $(`#file-${role}`).addEventListener("change", async (e) => {
      const [file] = e.target.files;
      if (file) await take(role, file);
      e.target.value = "";
    });
  $("#file-recipe").addEventListener("change", async (e) => {
    const [file] = e.target.files;
    if (file)
      await post("/api/recipe", { text: await file.text() }, "recipe").catch(
        () => {},
      );
    e.target.value = "";
  });
  for (const role of ["trips", "zones"]) {
    const place = $(`#drop-${role}`);
    for (const kind of ["dragenter", "dragover"])
      place.addEventListener(kind, (e) => {
        e.preventDefault();
        place.classList.add("over");
      });
    for (const kind of ["dragleave", "drop"])
      place.addEventListener(kind, () => place.classList.remove("over"));
    place.addEventListener("drop", (e) => {
      e.preventDefault();
      const [file] = e.dataTransfer.files;
      if (file) take(role, file);
    });
  }
  /* A file dropped elsewhere must not replace the page. */
  for (const kind of ["dragover", "drop"])
    addEventListener(kind, (e) => e.preventDefault());

  async function take(role, file) {
    offerMap(null);
    const is = (endings) =>
      endings.some((end) => file.name.toLowerCase().endsWith(end));
    const { endings, max_upload: most } = session.state;
    if (role === "trips" && !is(endings.trips) && is(endings.zones)) {
      offerMap(file);
      return;
    }
    if (file.size > most) {
      setProblem(
        `file ${role}`,
        `${file.name} has ${size(file.size)}; at most ${size(most)} are taken. Start flowveil serve in the folder of the file, and pick it there.`,
      );
      return;
    }
    const bar = $("#uploading");
    bar.hidden = role === "release";
    bar.value = 0;
    try {
      await upload(role, file, (part) => {
        bar.value = part;
      });
    } catch {
      return;
    } finally {
      bar.hidden = true;
    }
    if (role === "trips") go("columns");
  }
  /* A map that was dropped on the trips. */
  function offerMap(file) {
    misplaced = file;
    $("#offer-map").hidden = !file;
    $("#offer-map-text").textContent = file
      ? `${file.name} holds outlines, not trips. Is it the map of your zones?`
      : "";
  }
  $("#use-as-map").addEventListener("click", () => take("zones", misplaced));
  $("#no-map").addEventListener("click", () => offerMap(null));

  $("#demo").addEventListener("click", async () => {
    try {
      await post("/api/demo", {}, "job demo");
      waiting = true;
    } catch {
      /* the page shows why */
    }
  });
  $("#empty").addEventListener("click", () =>
    post("/api/empty", {}).catch(() => {}),
  );
  $("#remove-zones").addEventListener("click", () =>
    post("/api/empty", { role: "zones" }).catch(() => {}),
  );
  $("#forget-last").addEventListener("click", () =>
    post("/api/forget").catch(() => {}),
  );
  $("#no-ledger").addEventListener("click", () =>
    post("/api/ledger", {}, "ledger").catch(() => {}),
  );
  $("#database").addEventListener("submit", async (e) => {
    e.preventDefault();
    try {
      await post("/api/database", { address: $("#address").value }, "database");
      go("columns");
    } catch {
      /* the page shows why */
    }
  });
  for (const element of $$("[data-pick]"))
    element.addEventListener("click", () => {
      $("#browser").hidden = false;
      browse(element.dataset.pick, "").catch(() => {});
    });

  async function pick(role, path) {
    const where = role === "ledger" ? "/api/ledger" : "/api/pick";
    await post(
      where,
      { role, path },
      role === "ledger" ? "ledger" : `file ${role}`,
    );
    if (role === "trips") go("columns");
    else $("#browser").hidden = true;
  }
  async function browse(role, path) {
    const asked = `role=${role}&path=${encodeURIComponent(path)}`;
    const { entries } = await get(`/api/browse?${asked}`);
    $("#browser-title").textContent =
      `${TITLES[role]}${path ? ` in ${path}` : ""}`;
    const parent = path.split("/").slice(0, -1).join("/");
    const rows = path
      ? [row("..", "folder above", () => browse(role, parent))]
      : [];
    if (role === "ledger")
      rows.push(
        row(path ? "Use this folder" : "Use the folder ledger here", "", () =>
          pick(role, path || "ledger"),
        ),
      );
    for (const entry of entries)
      rows.push(
        entry.folder
          ? row(`${entry.name}/`, "folder", () => browse(role, entry.path))
          : row(entry.name, size(entry.size), () => pick(role, entry.path)),
      );
    fill(
      $("#entries"),
      ...(rows.length
        ? rows
        : [make("li", "This folder has no readable file.", "soft")]),
    );
    $("#entries button")?.focus();
  }
  function row(name, note, act) {
    const item = make("li");
    const control = button(name, act);
    control.append(make("span", note, "soft"));
    item.append(control);
    return item;
  }

  onState((state) => {
    for (const at of $$(".folder")) at.textContent = state.folder;
    for (const role of ["trips", "zones"]) {
      const file = state.files[role];
      $(`#name-${role}`).textContent = file ? named(file) : "";
    }
    const { trips, zones } = state.files;
    $("#remove-zones").hidden = !zones;
    $("#empty").disabled = !trips;
    $("#to-columns").hidden = !trips;
    const map = zones ? `, with the map ${zones.name}` : "";
    $("#about-file").textContent = trips
      ? `${named(trips)}${map}`
      : "No trips yet.";
    $("#last-time").textContent = state.last_time
      ? `The next trips are read and protected as ${state.last_time}.`
      : "";
    $("#forget-last").hidden = !state.last_time;
    $("#ledger-name").textContent = state.ledger
      ? `Recorded in ${state.ledger}.`
      : "No ledger.";
    $("#no-ledger").hidden = !state.ledger;
    const isMade = !state.jobs.some(
      (job) => job.kind === "demo" && job.state === "running",
    );
    if (waiting && trips && isMade) {
      waiting = false;
      go("columns");
    }
  });
}

const named = (file) =>
  file.size === null ? file.name : `${file.name}, ${size(file.size)}`;
