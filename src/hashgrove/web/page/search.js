/**
 * A search: from a query and the options to its neighbours.
 *
 * A query is one of `{id}` (of an item), `{image}` (a File), `{features}` (numbers) and `{code}` (hexadecimal).
 */

import { get, postSearch } from "./api.js";
import { differing } from "./bits.js";

const DEPTH = 200; // how far down the ranking by bits we look for where a neighbour came from

const REQUESTS = { bits: { plain: true }, classes: {}, weights: { weights: true }, features: { rerank: true } };

/** Whether a query can be ranked in this way: all but bits need its features, and those of an item are stored or not. */
export function canRank(ranking, query, info) {
  return ranking === "bits" || (query.id === undefined ? query.code === undefined : info.can_rerank);
}

/**
 * Search.
 *
 * @param {Object} query
 * @param {Object} options
 * @param {number} options.k - at most so many neighbours; an item is no neighbour of itself
 * @param {number|null} options.radius - only neighbours within so many bits; null for any distance
 * @param {string} options.ranking - "bits", "classes", "weights" or "features"
 * @param {Object} info - of the collection
 * @param {AbortSignal} signal
 * @returns {Promise<Object>} `item` (for a query by id), `bits`, `histogram`, `timings`, `truncated` (whether there are
 *   more neighbours within the radius), `rankedBy` (as `ranking`, but "bits" for an item without the features that its
 *   classes are computed from), and `neighbours`, each with its Hamming distance as `differences`, and with its rank by
 *   bits as `before` where another ranking was asked for
 */
export async function search(query, { k, radius, ranking }, info, signal) {
  const started = performance.now();
  const limit = info.limits.k;
  const own = query.id === undefined ? 0 : 1; // room for the item itself
  const wanted = { k: Math.min(k + own, limit), show_code: true };
  const within = ranking === "bits" && radius !== null ? { radius } : {};
  const isDefault = ranking === info.default_ranking; // the service's own choice needs no option
  const asked = { ...wanted, ...within, ...(isDefault ? {} : REQUESTS[ranking]) };
  const first = postSearch(bodyOf(query, { ...asked, show_histogram: true }, info), signal);
  const [answer, browser, item, plain] = await Promise.all([
    first,
    first.then(() => performance.now() - started),
    own ? get(`/items/${encodeURIComponent(query.id)}`, signal) : null,
    ranking === "bits"
      ? null
      : postSearch(bodyOf(query, { k: Math.min(Math.max(DEPTH, k + own), limit), plain: true }, info), signal),
  ]);
  const [{ bits, histogram, truncated }] = answer.queries;
  const found = others(answer, query);
  const neighbours = found
    .slice(0, k)
    .map((one) => ({ ...one, differences: differing(bits, one.bits).length }));
  if (plain) {
    const ranks = new Map(others(plain, query).map((one, at) => [one.id, at + 1]));
    neighbours.forEach((one) => (one.before = ranks.get(one.id) ?? null));
  }
  const cut = Boolean(truncated) || (radius !== null && found.length > k);
  const timings = { ...answer.timings, browser };
  return { item, bits, histogram, neighbours, truncated: cut, rankedBy: answer.ranked_by, timings };
}

function others(answer, query) {
  return answer.results[0].filter((one) => one.id !== query.id);
}

function bodyOf(query, settings, info) {
  if (query.image) {
    const form = new FormData();
    form.append("image", query.image, query.image.name || "image");
    Object.entries(settings).forEach(([name, value]) => form.append(name, String(value)));
    return form;
  }
  const what = query.features
    ? { features: [query.features] }
    : query.code
      ? { codes: [query.code], ...(info.model ? { model: info.model } : {}) }
      : { id: query.id };
  return { ...what, ...settings };
}
