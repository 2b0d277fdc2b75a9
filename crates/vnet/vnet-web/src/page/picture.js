// Pictures of the map: SVG files that need no style sheet, and PNG files made of them.

import { save, svg } from "./elements.js";

const STYLES = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray",
  "stroke-linejoin", "stroke-linecap", "paint-order", "opacity", "font-size", "font-family",
  "font-weight", "text-anchor", "vector-effect"];
const SHARP = 2;

/** The map as it is shown now, as the text of an SVG file. */
export function pictureOf(map, title) {
  const { clientWidth: width, clientHeight: height } = map;
  const view = map.viewBox.baseVal;
  const picture = svg("svg", { viewBox: map.getAttribute("viewBox"), width, height });
  const ground = getComputedStyle(document.body).backgroundColor;
  // The visible part is as wide or as high as the view, and its middle is that of the view.
  const scale = Math.min(width / view.width, height / view.height) || 1;
  picture.append(svg("title", {}, title), svg("rect", {
    x: view.x + view.width / 2 - width / scale / 2,
    y: view.y + view.height / 2 - height / scale / 2,
    width: width / scale, height: height / scale, fill: ground }));
  for (const child of map.children) {
    const copy = copied(child);
    if (copy) picture.append(copy);
  }
  return new XMLSerializer().serializeToString(picture);
}

/** A copy of an element with its styles as attributes; null if it is not visible. */
function copied(element) {
  const style = getComputedStyle(element);
  const isHidden = style.display === "none" || style.visibility === "hidden"
    || style.opacity === "0";
  if (isHidden || element.matches(".touch")) return null;
  const copy = element.cloneNode(false);
  for (const { name } of [...copy.attributes]) {
    if (/^(class|style|data-|tabindex|role|aria-)/.test(name)) copy.removeAttribute(name);
  }
  if (!["g", "title"].includes(element.tagName)) {
    for (const name of STYLES) {
      const value = style.getPropertyValue(name);
      if (value && !DEFAULTS.has(name + ":" + value)) copy.setAttribute(name, value);
    }
  }
  if (!element.children.length) copy.textContent = element.textContent;
  for (const child of element.children) {
    const inner = copied(child);
    if (inner) copy.append(inner);
  }
  return copy;
}

const DEFAULTS = new Set(["fill-opacity:1", "stroke-dasharray:none", "opacity:1", "stroke:none",
  "paint-order:normal", "vector-effect:none", "stroke-linejoin:miter", "stroke-linecap:butt"]);

export function saveSvg(map, name) {
  save(new Blob([pictureOf(map, name)], { type: "image/svg+xml" }), name + ".svg");
}

/** Saves a PNG with two pixels for each pixel of the screen. */
export async function savePng(map, name) {
  const image = new Image();
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(pictureOf(map, name));
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = map.clientWidth * SHARP;
  canvas.height = map.clientHeight * SHARP;
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
  if (!blob) throw new Error("the browser could not make a PNG of the map: save it as SVG");
  save(blob, name + ".png");
}
