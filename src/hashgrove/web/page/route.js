/** Addresses within the page, kept in the hash so that "back" works and an item can be linked to. */

/**
 * Where the page is.
 *
 * @returns {{view: string, id?: string, page?: number, label?: string, name?: string}} the view is "collection" (with its
 *   page, label and name), "item" (with its id), "query" or "quality"
 */
export function currentRoute() {
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
  if (path.startsWith("item/")) {
    return { view: "item", id: decoded(path.slice("item/".length)) };
  }
  if (path === "query" || path === "quality") {
    return { view: path };
  }
  const parameters = new URLSearchParams(search);
  const page = Math.max(1, Number.parseInt(parameters.get("page"), 10) || 1);
  return { view: "collection", page, label: parameters.get("label") ?? "", name: parameters.get("name") ?? "" };
}

/** The address of a page of the collection, or of the items with a label or a name. */
export function collectionRoute({ page = 1, label = "", name = "" } = {}) {
  const parameters = new URLSearchParams();
  if (page > 1) {
    parameters.set("page", page);
  }
  if (label) {
    parameters.set("label", label);
  }
  if (name) {
    parameters.set("name", name);
  }
  return parameters.size ? `#/?${parameters}` : "#/";
}

/** The address of the neighbours of an item. */
export function itemRoute(id) {
  return `#/item/${encodeURIComponent(id)}`;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a "%" that somebody typed
  }
}
