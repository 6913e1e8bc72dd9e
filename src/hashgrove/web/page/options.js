/** The options of a search: how many results, within which radius, ranked by what. */

import { byId, count } from "./dom.js";
import { canRank } from "./search.js";

const MOST = 100; // results that can be taken in at a glance; the API gives more
const PAUSE = 80; // milliseconds without a change, after which a slider counts as let go

const HINTS = {
  bits: "",
  weights: "Bits are weighted by the confidence of the query in them. Arrows show how far an item has moved against plain bits.",
  features: "The nearest by bits, ordered by their features. Arrows show how far an item has moved against plain bits.",
  classes:
    "Ordered by the classes that the codes state. The number is one minus the probability that an item has the class of the query. Arrows show how far an item has moved against plain bits.",
};

let wanted = "bits"; // the ranking that the reader chose, or the default of the collection; a query that does not allow it is ranked by bits

/**
 * Prepare the controls.
 *
 * @param {Object} info - of the collection
 * @param {function()} changed - called after a change
 */
export function startOptions(info, changed) {
  byId("k").max = Math.max(1, Math.min(MOST, info.limits.k - 1, info.items));
  byId("k").value = 20;
  byId("radius").max = info.n_bits;
  byId("radius").value = info.n_bits;
  const possible = { bits: true, classes: info.can_decode, weights: info.takes_weights, features: info.can_rerank };
  choices()
    .filter(({ value }) => !possible[value])
    .forEach((one) => one.closest("label").remove());
  byId("ranking").hidden = choices().length === 1;
  wanted = info.default_ranking;
  choices().find(({ value }) => value === wanted).checked = true;
  let timer = null;
  byId("options").addEventListener("input", () => {
    wanted = ranking();
    showValues(info);
    clearTimeout(timer);
    timer = setTimeout(changed, PAUSE);
  });
  byId("options").addEventListener("submit", (event) => event.preventDefault());
  showValues(info);
}

/** Offer only the rankings that a query allows. */
export function fitOptions(info, query) {
  choices().forEach((one) => (one.disabled = !canRank(one.value, query, info)));
  const chosen = canRank(wanted, query, info) ? wanted : "bits";
  choices().find(({ value }) => value === chosen).checked = true;
  showValues(info);
}

/** The options as `search` takes them. */
export function chosenOptions(info) {
  const radius = Number(byId("radius").value);
  return { k: Number(byId("k").value), radius: radius < info.n_bits ? radius : null, ranking: ranking() };
}

/** Set the radius as if the reader had moved the slider. */
export function setRadius(radius) {
  byId("radius").value = radius;
  byId("options").dispatchEvent(new Event("input"));
}

function ranking() {
  return new FormData(byId("options")).get("ranking");
}

function choices() {
  return [...document.querySelectorAll("#ranking input")];
}

function showValues(info) {
  const { k, radius } = chosenOptions(info);
  const plain = ranking() === "bits";
  byId("k-value").textContent = k;
  byId("radius").disabled = !plain; // it counts bits, which other rankings do not
  const text = plain && radius !== null ? `up to ${count(radius, "bit")}` : "any distance";
  byId("radius-value").textContent = text;
  byId("radius").setAttribute("aria-valuetext", text);
  byId("options-hint").textContent = HINTS[ranking()];
}
