/* The numbers of the maps as tables. */

import { volumesOf, nameOf } from "./model.mjs";
import { amount, labelled, make } from "./panel.mjs";
import { exact } from "./scale.mjs";

const ROWS = 100;

export function fillTables(world, root, act) {
  const { model, state } = world, { flows } = model, { bases } = model.data;
  const zoneCell = (end, zone) => {
    const td = make("td"), button = make("button", "", "zone");
    button.append(...labelled(model, end, zone));
    button.type = "button";
    button.setAttribute("aria-label", `Select ${end} zone ${nameOf(model, end, zone)}`);
    button.addEventListener("click", () => act.zone(end, zone));
    td.append(button);
    return td;
  };
  const row = (body, n, cells) => { const tr = make("tr", "", n >= 20 ? "screen" : ""); tr.append(...cells); body.append(tr); };
  const body = root.querySelector("#flow-rows");
  if (body) {
    body.textContent = "";
    let n = 0, total = 0;
    for (const i of model.rank[state.basis]) {
      if (state.selected && flows[state.selected.end][i] !== state.selected.zone) continue;
      total++;
      if (n >= ROWS) continue;
      row(body, n++, [zoneCell("origin", flows.origin[i]), zoneCell("destination", flows.destination[i]), ...bases.map((b) => make("td", amount(model, flows[b][i]), "number"))]);
    }
    const pairs = model.estimated ? " Numbers are estimates on common areas; flows.parquet has the published zones." : ` Pairs that are not listed in flows.parquet: ${model.missing}.`;
    root.querySelector("#flow-count").textContent = (state.selected ? `${exact(n)} of the ${exact(total)} flows of the selected ${model.word}.` : `The ${exact(n)} largest of ${exact(model.count.flows)}.`) + pairs;
  }
  const zoneBody = root.querySelector("#zone-rows");
  if (zoneBody) {
    const end = root.querySelector("#zone-end").value, layer = model.layers[end], wanted = root.querySelector("#zone-filter").value.trim().toLowerCase();
    const order = layer.code.map((_, i) => i).filter((i) => !wanted || nameOf(model, end, i).toLowerCase().includes(wanted));
    order.sort((p, q) => layer[state.basis][q] - layer[state.basis][p] || p - q);
    const volumes = bases.map((b) => volumesOf(model, end, b, null));
    zoneBody.textContent = "";
    order.slice(0, ROWS).forEach((i, n) => row(zoneBody, n, [
      zoneCell(end, i), ...volumes.map((v) => make("td", v[i] === null ? model.missing : amount(model, v[i]), "number")),
      make("td", exact(layer.tiles[i]), "number"), make("td", exact(layer.area[i]), "number"), ...(model.data.boxes ? [] : [make("td", exact(layer.level[i]), "number")]),
    ]));
    root.querySelector("#zone-count").textContent = `${exact(Math.min(order.length, ROWS))} of ${exact(wanted ? order.length : model.count[end])} ${end} ${model.word}s.`;
  }
}
