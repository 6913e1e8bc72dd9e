/** The reference at /docs: sends the requests of its forms to this service, and shows the answers. */

import { address, getKey, setKey } from "./api.js";
import { element } from "./dom.js";

const MOST = 20_000; // characters of an answer that are shown

/** Values that make each request work at once, from what the service holds. */
async function examples() {
  const [info, items] = await Promise.all([ask("/info"), ask("/items?limit=1")]);
  const first = items?.items?.[0];
  const item = first && (await ask(`/items/${encodeURIComponent(first.id)}`));
  const model = info?.model ? { model: info.model } : {};
  return {
    id: first?.id ?? "",
    "/search": first ? { id: first.id, k: 5 } : {},
    "/encode": info?.n_features ? { features: [Array(info.n_features).fill(0)] } : {},
    "/items": item ? newItem(info, item, model) : {},
  };
}

/** An item that can be added: by features where the index stores them, which then takes no codes. */
function newItem(info, item, model) {
  const id = info.id_kind === "text" ? { id: "new-item" } : {};
  const told = info.keeps_details ? { label: "new" } : {};
  return info.can_rerank
    ? { items: [{ ...id, features: Array(info.n_features).fill(0), ...told }] }
    : { items: [{ ...id, code: item.code, ...told }], ...model };
}

/** The JSON answer; null if there is none, as the forms can be filled in by hand as well. */
async function ask(path) {
  try {
    const answer = await fetch(address(path), { headers: headers() });
    return answer.ok ? await answer.json() : null;
  } catch {
    return null; // the service has stopped, or the reader has left
  }
}

function headers() {
  const key = getKey();
  return key === null ? {} : { "X-Api-Key": key };
}

async function send(form, answer) {
  const { method, path } = form.dataset;
  const given = [...form.querySelectorAll("[data-in]")].filter(({ value }) => value !== "");
  const query = new URLSearchParams(
    given.filter(({ dataset }) => dataset.in === "query").map(({ name, value }) => [name, value]),
  );
  const inPath = given.filter(({ dataset }) => dataset.in === "path");
  const filled = inPath.reduce((text, { name, value }) => text.replace(`{${name}}`, encodeURIComponent(value)), path);
  const file = form.elements.image?.files[0];
  const settings = { method, headers: headers() };
  if (file) {
    settings.body = new FormData();
    settings.body.append("image", file, file.name);
  } else if (form.elements.body) {
    settings.body = form.elements.body.value;
    settings.headers["Content-Type"] = "application/json";
  }
  answer.replaceChildren("Waiting for the service …");
  try {
    const started = performance.now();
    const response = await fetch(address(query.size ? `${filled}?${query}` : filled), settings);
    const blob = await response.blob();
    const time = `${(performance.now() - started).toFixed(0)} ms`;
    const status = element("p", {}, `${response.status} ${response.statusText}, ${time}, ${blob.size} bytes`);
    answer.replaceChildren(status, await shown(blob));
  } catch {
    answer.replaceChildren("The service does not answer. Check that it is still running, and try again.");
  }
}

async function shown(blob) {
  if (blob.type.startsWith("image/")) {
    const image = element("img", { alt: "The image in the answer" });
    image.src = URL.createObjectURL(blob);
    image.addEventListener("load", () => URL.revokeObjectURL(image.src));
    return image;
  }
  let text = await blob.text();
  if (blob.type.startsWith("application/json")) {
    text = JSON.stringify(JSON.parse(text), null, 2);
  }
  const cut = text.length > MOST ? `${text.slice(0, MOST)}\n… and ${text.length - MOST} more characters` : text;
  return element("pre", { tabindex: "0" }, cut);
}

async function fillIn(forms) {
  const values = await examples();
  for (const form of forms) {
    const id = form.querySelector("[name=id]");
    if (id && form.dataset.method === "GET") {
      id.value = values.id; // what a DELETE removes is to be typed
    }
    const example = values[form.dataset.path];
    if (form.elements.body && example) {
      form.elements.body.value = JSON.stringify(example);
    }
  }
}

const forms = [...document.querySelectorAll(".try form")];
document.body.classList.add("tries");
for (const form of forms) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(form, form.parentElement.querySelector(".answer"));
  });
}
const key = document.getElementById("key");
key?.addEventListener("change", () => {
  setKey(key.value);
  fillIn(forms);
});
if (!key || getKey() !== null) {
  fillIn(forms);
}
