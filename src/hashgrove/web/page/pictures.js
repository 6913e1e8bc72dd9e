/** Pictures of items: loaded when they come into view, and with the key where the service asks for one. */

import { getPicture, hasKey } from "./api.js";
import { element } from "./dom.js";

const SMALL = 64; // pictures of fewer pixels are enlarged with sharp edges

/**
 * The picture of an item. It has no text of its own, because the name of the item stands beside it.
 *
 * @param {string} path - as the service gave it
 * @returns {HTMLImageElement}
 */
export function picture(path) {
  const image = element("img", { alt: "", loading: "lazy", decoding: "async", class: "picture" });
  image.addEventListener("load", () => image.classList.toggle("pixels", image.naturalWidth < SMALL));
  image.addEventListener("error", () => image.classList.add("missing"));
  if (hasKey()) {
    waiting.set(image, path);
    whenSeen.observe(image);
  } else {
    image.src = path;
  }
  return image;
}

/** A file that the reader gave, as a picture. */
export function localPicture(file) {
  const image = element("img", { alt: "", class: "picture" });
  showBlob(image, file);
  return image;
}

const waiting = new WeakMap();

const whenSeen = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) {
        whenSeen.unobserve(target);
        getPicture(waiting.get(target)).then(
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
