/* Step 3: the share of trips that is safe before any change. */

import { $, cellChoices, count, fill, make, pageWords, share } from "./dom.mjs";
import { isOver, jobsOf, lastDone, onState, resultOf, session, start } from "./session.mjs";

export function mountDescribe(isHere) {
  let shown = "", requested = "";
  function request() {
    const state = session.state;
    if (!state?.files.trips || !isHere()) return;
    const key = JSON.stringify([state.files, cellChoices(state.choices)]);
    if (key === requested) return;
    requested = key;
    if (!jobsOf("describe").some((job) => (job.state === "done" || !isOver(job)) && JSON.stringify([state.files, cellChoices(job.request)]) === key)) start("describe").catch(() => {});
  }
  addEventListener("hashchange", request);
  onState(async () => {
    request();
    const job = jobsOf("describe").at(-1), done = lastDone("describe");
    if (job?.state === "failed" && job.id !== shown) { shown = job.id; fill($("#description"), make("p", pageWords(job.error), "notice")); }
    if (done && done.id !== shown && job?.state !== "failed") { shown = done.id; const found = await resultOf(done); if (found) show(found); }
    $("#description").classList.toggle("stale", Boolean(job && !isOver(job)));
    if (!job) { shown = ""; fill($("#description")); }
  });
}

function show(found) {
  const parts = [], units = found.levels[0].safe.map((s) => s.unit);
  parts.push(make("p", `${count(found.trips)} trips between ${count(found.origins)} origin and ${count(found.destinations)} destination tiles: ${count(found.flows)} pairs, ${(found.trips / found.flows).toFixed(1)} trips each on average.`));
  for (const unit of units) {
    const table = make("table", "", "bars-table"), body = make("tbody"), head = make("thead"), heads = make("tr");
    for (const text of ["Tiles", "Pairs", `Share that is safe at k = ${found.k}`, ""]) heads.append(make("th", text, "", text ? { scope: "col" } : {}));
    heads.lastChild.replaceWith(make("td"));
    head.append(heads);
    for (const level of found.levels) {
      const safe = level.safe.find((s) => s.unit === unit), row = make("tr"), bar = make("td", "", "bar"), fillBar = make("i");
      fillBar.style.width = `${100 * safe.volume}%`;
      bar.append(fillBar);
      row.append(make("th", level.resolution === null ? `${level.lifted} levels up` : `resolution ${level.resolution}`, "", { scope: "row" }), make("td", count(level.flows), "number"), bar, make("td", share(safe.volume), "number"));
      body.append(row);
    }
    table.append(head, body);
    const around = make("div", "", "scroll", { tabindex: "0", role: "region", "aria-label": `Safe already, counted in ${unit}` });
    around.append(table);
    parts.push(make("h3", `Safe already, counted in ${unit}`), around);
  }
  const who = found.contributors;
  if (who) {
    parts.push(make("h3", "Trips and people"));
    const lines = [`${count(who.people)} people; each is in ${who.flows_each.toFixed(1)} pairs on average.`];
    if (who.busiest_share !== null) lines.push(`The 1 % of people who travel most made ${share(who.busiest_share)} of the trips.`);
    if (who.few_behind !== null) lines.push(`Of the pairs with at least ${found.k} trips, ${share(who.few_behind)} are those of fewer than ${found.k} people: counting trips does not protect them.`);
    if (who.one_behind) lines.push(`One person made most trips of ${count(who.one_behind)} of the ${count(who.places)} places with at least ${found.k} trips.`);
    for (const line of lines) parts.push(make("p", line));
  }
  if (found.estimates.length) {
    const table = make("table", "", "narrow"), body = make("tbody"), head = make("thead"), heads = make("tr");
    for (const text of ["Method", "Cells", "Mean size of zones, in tiles"]) heads.append(make("th", text, text === "Method" ? "" : "number", { scope: "col" }));
    head.append(heads);
    for (const one of found.estimates) {
      const row = make("tr"), name = make("th", one.method, "", { scope: "row" });
      name.append(make("small", one.gives));
      row.append(name, make("td", one.cells === null ? "none" : count(one.cells), "number"), make("td", one.error === null ? one.reason : one.error < 100 ? one.error.toFixed(1) : count(one.error), "number"));
      body.append(row);
    }
    table.append(head, body);
    parts.push(make("h3", "What methods would give"), table);
  }
  parts.push(make("h3", "Where to start"));
  const list = make("ul");
  for (const line of found.advice) list.append(make("li", pageWords(line)));
  parts.push(list);
  fill($("#description"), ...parts);
}
