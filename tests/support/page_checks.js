// What is wrong with the page that is open, as a list of sentences. A small part of what axe looks
// at: names, labels, headings, landmarks, tables, references, contrast, and the width of the page.
() => {
  const found = [];
  const say = (rule, element) => {
    const text = element ? element.outerHTML.replace(/\s+/g, " ").slice(0, 160) : "";
    found.push(text ? `${rule}: ${text}` : rule);
  };
  const all = (selector) => [...document.querySelectorAll(selector)];
  const isShown = (element) =>
    element.checkVisibility({ checkVisibilityCSS: true }) && element.getClientRects().length > 0;
  const words = (text) => (text || "").trim().length > 0;

  // Names

  const referred = (element, attribute) =>
    (element.getAttribute(attribute) || "")
      .split(/\s+/)
      .filter(Boolean)
      .map((id) => document.getElementById(id));
  const nameOf = (element) => {
    const labelled = referred(element, "aria-labelledby").map((each) => each?.textContent || "").join(" ");
    const images = [...element.querySelectorAll("img[alt], [aria-label]")]
      .map((each) => each.getAttribute("alt") || each.getAttribute("aria-label"))
      .join(" ");
    return [labelled, element.getAttribute("aria-label"), element.textContent, images].find(words) || "";
  };
  for (const each of all("a[href], button, summary")) if (isShown(each) && !words(nameOf(each))) say("no name", each);
  for (const each of all("input, select, textarea")) {
    if (each.type === "hidden" || !isShown(each)) continue;
    const labels = [...(each.labels || [])].map((label) => label.textContent).join(" ");
    if (![labels, each.getAttribute("aria-label"), referred(each, "aria-labelledby").join("")].some(words)) say("no label", each);
  }
  for (const each of all("img:not([alt])")) say("no alt", each);
  for (const each of all('svg[role="img"], [role="region"], nav')) {
    if (isShown(each) && !words(each.getAttribute("aria-label")) && !referred(each, "aria-labelledby").length) say("no label", each);
  }
  for (const attribute of ["aria-labelledby", "aria-describedby", "aria-controls"]) {
    for (const each of all(`[${attribute}]`)) if (referred(each, attribute).includes(null)) say(`${attribute} of nothing`, each);
  }
  const ids = all("[id]").map((each) => each.id);
  for (const id of new Set(ids.filter((each, place) => ids.indexOf(each) !== place))) say(`two elements with the id ${id}`);

  // Structure

  if (document.documentElement.lang !== "en") say("no language");
  if (!words(document.title)) say("no title");
  if (all("main").length !== 1) say("not one main");
  if (all("h1").filter(isShown).length !== 1) say("not one h1");
  let level = 1;
  for (const each of all("main h1, main h2, main h3, main h4, main h5, main h6").filter(isShown)) {
    const now = Number(each.tagName[1]);
    if (now > level + 1) say(`a heading skips from ${level} to ${now}`, each);
    level = now;
  }
  const skip = document.querySelector("a.skip");
  if (!skip || !document.querySelector(skip.getAttribute("href"))) say("no skip link");
  for (const each of all("th:not([scope])")) say("no scope", each);
  for (const each of all("table")) if (!each.querySelector("th")) say("a table without headers", each);
  for (const each of all("ul > :not(li), ol > :not(li)")) say("no item of a list", each);
  for (const each of all("[tabindex]")) if (each.tabIndex > 0) say("a tabindex above 0", each);
  for (const each of all("*")) {
    if (isShown(each) && /(auto|scroll)/.test(getComputedStyle(each).overflowX) && each.scrollWidth > each.clientWidth + 1) {
      if (each.tabIndex < 0 && !each.querySelector("a, button, input")) say("scrolls, and keys cannot reach it", each);
    }
  }

  // Contrast

  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const cache = new Map();
  const rgba = (text) => {
    if (!cache.has(text)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = text;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
      cache.set(text, [r, g, b, a / 255]);
    }
    return cache.get(text);
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const groundOf = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) {
      const color = rgba(getComputedStyle(each).backgroundColor);
      if (color[3] > 0) layers.push(color);
      if (color[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const light = (color) => {
    const [r, g, b] = color.slice(0, 3).map((each) => {
      const share = each / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [high, low] = [light(a), light(b)].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
  };
  const seen = new Set();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    if (!words(walk.currentNode.data) || seen.has(element) || !isShown(element)) continue;
    seen.add(element);
    if (element.closest("[disabled], option, svg title")) continue;
    const style = getComputedStyle(element);
    const ground = groundOf(element);
    const color = over(rgba(element.closest("svg") ? style.fill : style.color), ground);
    const size = parseFloat(style.fontSize);
    const needed = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    const ratio = contrast(color, ground);
    if (ratio < needed) say(`contrast ${ratio.toFixed(2)} of ${style.color} on ${ground.slice(0, 3).map(Math.round)}`, element);
  }

  // Width

  const page = document.documentElement;
  if (page.scrollWidth > page.clientWidth) {
    say(`the page is ${page.scrollWidth - page.clientWidth} px too wide at ${page.clientWidth} px`);
    for (const each of all("main *")) {
      const right = each.getBoundingClientRect().right;
      if (isShown(each) && right > page.clientWidth + 1 && !each.closest(".scroll")) {
        say("reaches beyond the page", each);
        break;
      }
    }
  }
  if (window.hit !== undefined) say("a script that came with data has run");
  return found;
}
