/** Images of items: loaded when they come into view, and with the key where the service asks for one. */

import { address, getImage, hasKey } from "./api.js";
import { element } from "./dom.js";

const SMALL = 64; // images of fewer pixels are enlarged with sharp edges

/**
 * The image of an item. It has no text of its own, because the name of the item stands beside it.
 *
 * @param {string} path - as the service gave it
 * @returns {HTMLImageElement}
 */
export function itemImage(path) {
  const image = element("img", { alt: "", loading: "lazy", decoding: "async", class: "image" });
  image.addEventListener("load", () => image.classList.toggle("pixels", image.naturalWidth < SMALL));
  image.addEventListener("error", () => image.classList.add("missing"));
  if (hasKey()) {
    waiting.set(image, path);
    whenSeen.observe(image);
  } else {
    image.src = address(path);
  }
  return image;
}

/** A file that the reader gave, as an image. */
export function localImage(file) {
  const image = element("img", { alt: "", class: "image" });
  showBlob(image, file);
  return image;
}

const waiting = new WeakMap();

const whenSeen = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) {
        whenSeen.unobserve(target);
        getImage(waiting.get(target)).then(
          (blob) => showBlob(target, blob),
          () => target.classList.add("missing"),
        );
      }
    }
  },
  { rootMargin: "200px" },
);

function showBlob(image, blob) {
  const url = URL.createObjectURL(blob);
  image.addEventListener("load", () => URL.revokeObjectURL(url), { once: true });
  image.src = url;
}
