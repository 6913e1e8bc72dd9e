/** The box that takes a query: an image that is dropped, pasted or chosen, a vector, a code, or the id of an item. */

import { ServiceError } from "./api.js";
import { byId, number } from "./dom.js";
import { reportErrors } from "./errors.js";

const MEGABYTE = 1 << 20;

/**
 * Prepare the box.
 *
 * @param {Object} info - of the collection
 * @param {function(Object): Promise} search - gets a query, as `search.js` describes it
 */
export function startAsk(info, search) {
  const text = byId("ask-text");
  const submit = (query) => reportErrors(byId("ask-error"), async () => search(await query()));
  byId("ask-hint").textContent = hint(info);
  text.placeholder = info.takes_images ? "Drop or paste an image, or type" : "Paste or type";
  byId("ask-image").hidden = !info.takes_images;
  byId("ask-search").disabled = false; // before, no search could run

  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    submit(async () => readText(text.value, info));
  });
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      byId("ask").requestSubmit();
    }
  });
  byId("ask-image").addEventListener("click", () => byId("ask-file").click());
  byId("ask-file").addEventListener("change", ({ target }) => {
    const [file] = target.files;
    target.value = ""; // so that the same file can be chosen again
    submit(async () => readFile(file, info));
  });
  listenToPaste(text, (file) => submit(async () => readFile(file, info)));
  listenToDrop((file) => submit(async () => readFile(file, info)));
}

function hint(info) {
  const ways = ["the id or name of an item"];
  if (info.n_bits) {
    ways.push(`a code of ${info.n_bits} bits in hexadecimal`); // unknown in an empty collection without a model
  }
  if (info.n_features) {
    ways.unshift(`a vector of ${number(info.n_features)} numbers`);
  }
  if (info.takes_images) {
    ways.unshift("an image");
  }
  return `Takes ${[ways.slice(0, -1).join(", "), ways.at(-1)].filter(Boolean).join(" or ")}.`;
}

/** The query that a text stands for. */
function readText(text, info) {
  const words = text.split(/[\s,;[\]()]+/).filter(Boolean);
  if (!words.length) {
    throw new ServiceError(`Nothing to search with yet. ${hint(info)}`, 422);
  }
  const wrong = words.filter((word) => !Number.isFinite(Number(word)));
  if (words.length > 1 && wrong.length < words.length / 2) {
    return { features: readVector(words, wrong, info) };
  }
  const digits = Math.ceil(info.n_bits / 8) * 2;
  const id = text.trim();
  return id.length === digits && /^[0-9a-f]+$/i.test(id) ? { code: id.toLowerCase() } : { id };
}

function readVector(words, wrong, info) {
  if (!info.n_features) {
    throw new ServiceError("This collection has no model, so it takes codes and ids, but no vectors.", 422);
  }
  if (wrong.length) {
    throw new ServiceError(`The vector must consist of numbers. Got “${wrong[0].slice(0, 40)}”.`, 422);
  }
  if (words.length !== info.n_features) {
    throw new ServiceError(
      `The vector must have ${number(info.n_features)} numbers. Got ${number(words.length)}.`,
      422,
    );
  }
  return words.map(Number);
}

/** The query that a file stands for; the service checks that it is an image. */
function readFile(file, info) {
  if (!info.takes_images) {
    throw new ServiceError("The model of this collection takes vectors, not images.", 422);
  }
  if (file.size > info.limits.image_bytes) {
    const [size, most] = [file.size, info.limits.image_bytes].map((bytes) => number(bytes / MEGABYTE, 1));
    throw new ServiceError(`The image must have at most ${most} MB. ${file.name} has ${size} MB.`, 413);
  }
  return { image: file };
}

function listenToPaste(text, take) {
  document.addEventListener("paste", (event) => {
    const [file] = event.clipboardData.files;
    if (file) {
      event.preventDefault();
      take(file);
    } else if (!event.target.closest("input, textarea")) {
      event.preventDefault();
      text.value = event.clipboardData.getData("text");
      text.focus();
      byId("ask").requestSubmit();
    }
  });
}

function listenToDrop(take) {
  const mark = (on) => byId("ask").classList.toggle("dropping", on);
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    mark(true);
  });
  document.addEventListener("dragleave", (event) => mark(event.relatedTarget !== null));
  document.addEventListener("drop", (event) => {
    event.preventDefault(); // the browser would leave the page for the file
    mark(false);
    const [file] = event.dataTransfer.files;
    if (file) {
      take(file);
    }
  });
}
