/** The collection, page by page. */

import { get } from "./api.js";
import { byId, count, element, number } from "./dom.js";
import { itemCard, listenToArrows } from "./items.js";
import { collectionRoute } from "./route.js";

const PAGE = 60; // items per page: divisible by many numbers of columns

let shown = ""; // the address of the page that is on screen

/** Prepare the filter and the keys. */
export function startGallery(info) {
  const list = byId("collection-items");
  list.classList.toggle("rows", !info.has_images);
  listenToArrows(list);
  if (info.has_labels && info.labels.length) {
    const select = byId("filter-label");
    select.append(element("option", { value: "" }, "all"), ...info.labels.map((label) => element("option", {}, label)));
    select.addEventListener("change", () => (location.hash = collectionRoute(1, select.value)));
    byId("filter").hidden = false;
  }
}

/** Show a page of the collection; one that is on screen already stays as it is. */
export async function showGallery({ page, label }) {
  const address = collectionRoute(page, label);
  if (address === shown) {
    return;
  }
  byId("filter-label").value = label;
  const parameters = new URLSearchParams({ offset: (page - 1) * PAGE, limit: PAGE });
  if (label) {
    parameters.set("label", label);
  }
  const { total, offset, items } = await get(`/items?${parameters}`);
  shown = address;
  byId("collection-items").replaceChildren(...items.map((item) => itemCard(item)));
  byId("collection-summary").textContent = items.length
    ? `${number(offset + 1)} to ${number(offset + items.length)} of ${count(total, "item")}`
    : "";
  byId("collection-nothing").replaceChildren(...(items.length ? [] : nothing(total, label)));
  byId("collection-nothing").hidden = items.length > 0;
  showPager(page, Math.ceil(total / PAGE), label);
}

/** What stands in the place of items where there are none, and what leads on from there. */
function nothing(total, label) {
  if (!total && !label) {
    const how = "Add some with “hashgrove index add”, or by a POST to ";
    return [
      element("p", {}, "There are no items yet."),
      element("p", { class: "hint" }, how, element("a", { href: "/docs#post-items" }, "/items"), "."),
    ];
  }
  const [text, to, where] = total
    ? ["There is no such page.", collectionRoute(1, label), "Go to the first page"]
    : [`No item has the label ${label}.`, collectionRoute(), "Show all items"];
  return [element("p", {}, text), element("a", { class: "button plain", href: to }, where)];
}

function showPager(page, last, label) {
  const pager = byId("pager");
  pager.hidden = last <= 1;
  const to = (target, text) =>
    target >= 1 && target <= last
      ? element("a", { href: collectionRoute(target, label), class: "button plain" }, text)
      : element("span", { class: "button plain off" }, text);
  pager.replaceChildren(
    to(page - 1, "Previous"),
    element("span", {}, `Page ${number(page)} of ${number(last)}`),
    to(page + 1, "Next"),
  );
}
