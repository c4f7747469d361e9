/* Step 1: a file is dropped, chosen, picked below the folder, or synthesised. */

import { $, $$, fill, make, size } from "./dom.mjs";
import { get, onState, post, session, setProblem, upload } from "./session.mjs";

export function mountFiles(go) {
  for (const role of ["trips", "zones", "release"]) {
    $(`#file-${role}`).addEventListener("change", async (e) => {
      const [file] = e.target.files;
      if (file) await take(role, file);
      e.target.value = "";
    });
  }
  $("#file-recipe").addEventListener("change", async (e) => {
    const [file] = e.target.files;
    if (file) await post("/api/recipe", { text: await file.text() }, "recipe").catch(() => {});
    e.target.value = "";
  });
  for (const role of ["trips", "zones"]) {
    const place = $(`#drop-${role}`);
    for (const kind of ["dragenter", "dragover"]) place.addEventListener(kind, (e) => { e.preventDefault(); place.classList.add("over"); });
    for (const kind of ["dragleave", "drop"]) place.addEventListener(kind, () => place.classList.remove("over"));
    place.addEventListener("drop", (e) => { e.preventDefault(); const [file] = e.dataTransfer.files; if (file) take(role, file); });
  }
  /* A file dropped elsewhere must not replace the page. */
  for (const kind of ["dragover", "drop"]) addEventListener(kind, (e) => e.preventDefault());

  async function take(role, file) {
    if (file.size > session.state.max_upload) {
      setProblem(`file ${role}`, `${file.name} has ${size(file.size)}; at most ${size(session.state.max_upload)} are taken. Start flowveil serve with --max-upload and a larger size, or in the folder of the file, and pick it there.`);
      return;
    }
    const bar = $("#uploading");
    bar.hidden = role === "release"; bar.value = 0;
    try { await upload(role, file, (part) => { bar.value = part; }); } catch { return; } finally { bar.hidden = true; }
    if (role === "trips") go("columns");
  }
  $("#demo").addEventListener("click", async () => { try { await post("/api/demo", {}, "job demo"); waiting = true; } catch { /* the page shows why */ } });
  $("#empty").addEventListener("click", () => post("/api/empty", {}).catch(() => {}));
  $("#remove-zones").addEventListener("click", () => post("/api/empty", { role: "zones" }).catch(() => {}));
  for (const [id, role] of [["#pick", "trips"], ["#pick-zones", "zones"]]) $(id).addEventListener("click", () => { $("#browser").hidden = false; browse(role, "").catch(() => {}); });

  async function browse(role, path) {
    const { entries } = await get(`/api/browse?role=${role}&path=${encodeURIComponent(path)}`);
    $("#browser-title").textContent = `${role === "trips" ? "Trips" : "Maps"}${path ? ` in ${path}` : ""}`;
    const up = path ? [row("..", "folder above", () => browse(role, path.split("/").slice(0, -1).join("/")))] : [];
    const rows = entries.map((e) => e.folder
      ? row(e.name + "/", "folder", () => browse(role, e.path))
      : row(e.name, size(e.size), async () => { await post("/api/pick", { role, path: e.path }, `file ${role}`); if (role === "trips") go("columns"); else $("#browser").hidden = true; }));
    fill($("#entries"), ...up, ...(rows.length || up.length ? rows : [make("li", "This folder has no readable file.", "soft")]));
    $("#entries button")?.focus();
  }
  function row(name, note, act) {
    const item = make("li"), button = make("button", name, "", { type: "button" });
    button.append(make("span", note, "soft"));
    button.addEventListener("click", () => act().catch(() => {}));
    item.append(button);
    return item;
  }

  let waiting = false;
  onState((state) => {
    for (const at of $$(".folder")) at.textContent = state.folder;
    for (const role of ["trips", "zones"]) {
      const file = state.files[role];
      $(`#name-${role}`).textContent = file ? `${file.name}, ${size(file.size)}` : "";
    }
    $("#remove-zones").hidden = !state.files.zones;
    $("#empty").disabled = !state.files.trips;
    $("#to-columns").hidden = !state.files.trips;
    const trips = state.files.trips;
    $("#about-file").textContent = trips ? `${trips.name}, ${size(trips.size)}${state.files.zones ? `, with the map ${state.files.zones.name}` : ""}` : "No trips yet.";
    if (waiting && trips && !state.jobs.some((job) => job.kind === "demo" && job.state === "running")) { waiting = false; go("columns"); }
  });
}
