/** The options of a search: how many results, within which radius, ranked by what. */

import { byId, count } from "./dom.js";
import { knowsFeatures } from "./search.js";

const MOST = 100; // results that can be taken in at a glance; the API gives more
const PAUSE = 80; // milliseconds without a change, after which a slider counts as let go

const HINTS = {
  bits: "",
  weights: "Bits are weighted by the confidence of the query in them. Arrows show how far an item has moved against plain bits.",
  rerank: "The nearest by bits, ordered by their features. Arrows show how far an item has moved against plain bits.",
};

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
  byId("ranking").hidden = !info.takes_weights && !info.can_rerank;
  choice("weights").closest("label").hidden = !info.takes_weights;
  choice("rerank").closest("label").hidden = !info.can_rerank;
  let timer = null;
  byId("options").addEventListener("input", () => {
    showValues(info);
    clearTimeout(timer);
    timer = setTimeout(changed, PAUSE);
  });
  byId("options").addEventListener("submit", (event) => event.preventDefault());
  showValues(info);
}

/** Offer only the rankings that a query allows. */
export function fitOptions(info, query) {
  const possible = knowsFeatures(query);
  choice("weights").disabled = choice("rerank").disabled = !possible;
  if (!possible) {
    choice("bits").checked = true;
  }
  showValues(info);
}

/** The options as `search` takes them. */
export function chosenOptions(info) {
  const radius = Number(byId("radius").value);
  return { k: Number(byId("k").value), radius: radius < info.n_bits ? radius : null, ranking: ranking() };
}

function ranking() {
  return new FormData(byId("options")).get("ranking");
}

function choice(value) {
  return document.querySelector(`#ranking input[value=${value}]`);
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
