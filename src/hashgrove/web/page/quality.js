/** The quality report: how often the nearest items have the label of the query. */

import { ServiceError, get } from "./api.js";
import { keepChart, lineChart } from "./charts.js";
import { byId, count, element, number, svg } from "./dom.js";

const PAUSE = 1000; // milliseconds between two questions whether the report is ready

/** Show the report; wait for it while the service computes it. */
export async function showQuality() {
  for (;;) {
    const { status, report, reason } = await get("/report");
    if (status === "ready") {
      show(report);
      return;
    } else if (status === "running") {
      byId("quality-summary").textContent = "The service is computing the report …";
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
    } else {
      throw new ServiceError(`There is no report. ${reason}`, 404);
    }
  }
}

function show(report) {
  byId("quality-summary").textContent = report.protocol;
  const curve = element("div");
  const values = report.precision.map(([rank, value]) => `${value.toFixed(2)} at ${rank}`);
  const label = `Precision by rank: ${values.join(", ")}`;
  byId("quality-content").replaceChildren(
    ...heldOut(report.validation),
    ...trained(report),
    figures(report),
    element(
      "div",
      { class: "charts" },
      element(
        "figure",
        { class: "card" },
        caption("Precision", "share of the nearest items that have the query’s label"),
        curve,
      ),
      element(
        "figure",
        { class: "card" },
        caption("Mean average precision by label", "1 is perfect"),
        classes(report.per_class),
      ),
    ),
  );
  keepChart(curve, (width) => lineChart(report.precision, { width, title: "nearest items", label }));
}

/** The validation of the fit, which is what to expect of new items. */
function heldOut(validation) {
  if (!validation) return [];
  const line = ({ method, n_bytes: bytes, map, precision_at_10: precision }) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, method),
      element("td", {}, number(bytes)),
      element("td", {}, number(map, 3)),
      element("td", {}, number(precision, 3)),
    );
  const head = ["Method", "Bytes", "MAP", "Precision at 10"].map((text) => element("th", { scope: "col" }, text));
  return [
    element(
      "figure",
      { class: "card", id: "quality-held-out" },
      caption("New items", `${count(validation.n_held_out, "row")} that were held out when the model was trained`),
      element(
        "table",
        {},
        element("thead", {}, element("tr", {}, ...head)),
        element("tbody", {}, ...validation.rows.map(line)),
      ),
    ),
  ];
}

/** A warning that figures on items that were trained on are not those of new items. */
function trained({ trained_share: share, validation }) {
  if (!share) return share === null && !validation ? [note("Items that a model was trained on have better figures than new ones.")] : [];
  const which = share > 0.99 ? "these items" : "some of these items";
  return [note(`The model was trained on ${which}, so the figures below are better than for new ones.`)];
}

function note(text) {
  return element("p", { class: "hint", role: "note" }, text);
}

function figures({ map, precision, distinct, n_items: items, n_queries: queries }) {
  const [rank, value] = precision.findLast(([depth]) => depth <= 10);
  const rows = [
    ["Mean average precision", number(map, 3), `over ${count(queries, "query", "queries")}`],
    [`Precision at ${rank}`, number(value, 3), `of the first ${count(rank, "item")}`],
    ["Distinct codes", number(distinct.codes), `for ${count(items, "item")}, ${number(distinct.share * 100)} %`],
    ["Largest group", number(distinct.largest), "items that share one code"],
  ];
  const boxes = rows.map(([name, figure, remark]) =>
    element(
      "div",
      { class: "card" },
      element("dt", {}, name),
      element("dd", {}, element("strong", {}, figure), remark),
    ),
  );
  return element("dl", { class: "figures" }, ...boxes);
}

function classes(rows) {
  const lines = rows.map(({ label, items, map }) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, label),
      element("td", { class: "of-one" }, share(map)),
      element("td", {}, number(map, 3)),
      element("td", { class: "muted" }, number(items)),
    ),
  );
  const head = ["Label", "", "MAP", "Items"].map((text) =>
    text ? element("th", { scope: "col" }, text) : element("td"),
  );
  return element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...lines));
}

/** A bar for a number from 0 to 1, which stands beside it in figures. */
function share(value) {
  return svg(
    "svg",
    { class: "share", "aria-hidden": "true" },
    svg("rect", { width: `${value * 100}%`, height: "100%", rx: 5 }),
  );
}

function caption(title, remark) {
  return element("figcaption", {}, element("h2", {}, title), element("span", {}, remark));
}
