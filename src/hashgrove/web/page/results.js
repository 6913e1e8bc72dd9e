/** The neighbours of a query: its code, the items that were found, and how far away everything else is. */

import { describe, drawBits, drawStrip } from "./bits.js";
import { barChart, keepChart } from "./charts.js";
import { byId, count, element, number } from "./dom.js";
import { reportErrors } from "./errors.js";
import { itemCard, listenToArrows, nameOf } from "./items.js";
import { showLarge } from "./large.js";
import { chosenOptions, fitOptions, setRadius, startOptions } from "./options.js";
import { itemImage, localImage } from "./images.js";
import { search } from "./search.js";

const TIMES = {
  features: "Image to features",
  encode: "Features to code",
  wait: "Waiting",
  search: "Search",
  total: "In the service",
  browser: "Round trip",
};

let info = null;
let shown = null; // the query whose neighbours are on screen
let running = null; // cancels the search that is under way

/** Prepare the view for a collection. */
export function startResults(collection) {
  info = collection;
  byId("results-items").classList.toggle("rows", !info.has_images);
  listenToArrows(byId("results-items"));
  startOptions(info, () => reportErrors(byId("results-error"), () => showResults(shown)));
}

/** Whether the neighbours of this query are on screen. */
export function isShown(query) {
  return shown !== null && (shown === query || (query.id !== undefined && shown.id === query.id));
}

/** Remove the neighbours of an earlier query, which do not belong below the title of another. */
export function hideResults() {
  shown = null;
  byId("results-title").textContent = "Nearest items";
  byId("results-summary").textContent = "";
  byId("results-content").hidden = true;
}

/** Search with the chosen options and show what was found. */
export async function showResults(query) {
  running?.abort();
  running = new AbortController();
  fitOptions(info, query);
  const options = chosenOptions(info);
  const found = await search(query, options, info, running.signal);
  shown = query;
  byId("results-content").hidden = false;
  byId("results-title").textContent = found.item ? `Nearest to ${nameOf(found.item)}` : "Nearest to your query";
  byId("results-summary").textContent = summary(found, options);
  byId("results-nothing").replaceChildren(...(found.neighbours.length ? [] : nothing(found)));
  byId("results-nothing").hidden = found.neighbours.length > 0;
  byId("query").replaceChildren(...queryParts(query, found.item));
  byId("results-items").replaceChildren(...found.neighbours.map((one, at) => neighbourCard(one, at + 1, found)));
  showCode(found.bits);
  showHistogram(found);
  byId("times").replaceChildren(...times(found.timings));
}

function summary({ item, neighbours, histogram, truncated, rankedBy }, { radius, ranking }) {
  const parts = [];
  if (ranking === "bits" && radius !== null) {
    const within = histogram.slice(0, radius + 1).reduce((sum, value) => sum + value, 0) - (item ? 1 : 0);
    parts.push(`${within ? count(within, "item") : "nothing"} within ${count(radius, "bit")}`);
    if (!within && nearestOf({ item, histogram }) !== -1) {
      parts.push(`the nearest is ${nearestOf({ item, histogram })} away`);
    }
    if (truncated) {
      parts.push(`the nearest ${number(neighbours.length)} are shown`);
    }
  } else {
    parts.push(count(neighbours.length, "item"));
  }
  if (item?.label !== undefined && neighbours.length) {
    const same = neighbours.filter(({ label }) => label === item.label).length;
    parts.push(`${number(same)} with the label ${item.label}`);
  }
  if (rankedBy !== ranking) {
    parts.push(`ranked by ${rankedBy}, because the item has no features`);
  }
  const text = parts.join(", ");
  return text[0].toUpperCase() + text.slice(1);
}

/** What stands in the place of neighbours where there are none: how far away the nearest one is. */
function nothing(found) {
  const nearest = nearestOf(found);
  if (nearest === -1) {
    return [element("p", {}, "There is no other item in the collection.")];
  }
  const show = { type: "button", class: "plain", onclick: () => setRadius(nearest) };
  return [
    element("p", {}, `The nearest item is ${count(nearest, "bit")} away.`),
    element("button", show, `Show items within ${count(nearest, "bit")}`),
  ];
}

/** The distance of the nearest item but the query itself; -1 if there is none. */
function nearestOf({ item, histogram }) {
  return histogram.findIndex((value, distance) => value - (item && distance === 0 ? 1 : 0) > 0);
}

function queryParts(query, item) {
  if (item) {
    return [
      item.image ? enlargeable(item) : null,
      element("p", {}, element("strong", {}, nameOf(item))),
      item.label === undefined ? null : element("span", { class: "label" }, item.label),
    ].filter((part) => part !== null);
  }
  if (query.image) {
    return [localImage(query.image), element("p", {}, element("strong", {}, query.image.name || "Your image"))];
  }
  const text = query.code ? `Code ${query.code}` : `Vector of ${count(query.features.length, "number")}`;
  return [element("p", {}, element("strong", {}, text))];
}

function enlargeable(item) {
  const how = { type: "button", class: "picture", onclick: () => showLarge(item) };
  return element("button", { ...how, "aria-label": `Larger view of ${nameOf(item)}` }, itemImage(item.image));
}

function neighbourCard(one, rank, { item, bits, neighbours }) {
  const card = itemCard(
    one,
    element("span", { class: "distance" }, count(one.differences, "bit")),
    one.before === undefined ? null : movement(one, rank),
    drawStrip(bits, one.bits),
  );
  if (item?.label !== undefined && one.label !== undefined) {
    card.querySelector(".label").classList.add(one.label === item.label ? "same" : "other");
  }
  for (const event of ["pointerenter", "pointerleave", "focus", "blur"]) {
    card.firstChild.addEventListener(event, () => compare(bits, neighbours));
  }
  return card;
}

/** The places that a neighbour has moved against the ranking by bits, and its distance in the unit of the other ranking. */
function movement({ before, distance }, rank) {
  const places = before === null ? null : before - rank;
  const [kind, sign, words] =
    places === null
      ? ["up", "▲ new", "far behind by bits"]
      : places === 0
        ? ["", "=", "same rank as by bits"]
        : places > 0
          ? ["up", `▲ ${places}`, `${count(places, "place")} up against bits`]
          : ["down", `▼ ${-places}`, `${count(-places, "place")} down against bits`];
  return element(
    "span",
    { class: "moved", title: `${words}; distance ${distance}` },
    element("span", { class: kind, "aria-hidden": "true" }, sign),
    element("span", { class: "unseen" }, words),
    element("span", {}, number(distance, 2)),
  );
}

/** Mark the bits of the neighbour under the cursor, or else of the one with the focus. */
function compare(bits, neighbours) {
  const list = byId("results-items");
  const link = list.querySelector("a:hover") ?? list.querySelector("a:focus");
  showCode(
    bits,
    neighbours.find(({ id }) => id === link?.dataset.id),
  );
}

function showCode(bits, one = null) {
  byId("code").replaceChildren(drawBits(bits, one?.bits));
  byId("code-caption").textContent = one
    ? `${describe(one.differences, bits.length)} from ${nameOf(one)}`
    : `${bits.length} bits; point at an item to compare`;
}

function showHistogram({ histogram, neighbours }) {
  const marked = Math.max(-1, ...neighbours.map(({ differences }) => differences));
  const total = histogram.reduce((sum, value) => sum + value, 0);
  byId("histogram-caption").textContent = neighbours.length
    ? `${count(total, "item")}; those shown within ${count(marked, "bit")}`
    : `${count(total, "item")}; none is shown`;
  const label = `Number of items at each distance from 0 to ${histogram.length - 1} bits`;
  keepChart(byId("histogram"), (width) => barChart(histogram, { width, marked, title: "bits that differ", label }));
}

function times(timings) {
  return Object.entries(TIMES)
    .filter(([name]) => timings[name] !== undefined)
    .flatMap(([name, text]) => [element("dt", {}, text), element("dd", {}, `${number(timings[name], 1)} ms`)]);
}
