// What is wrong with the page that is open and no rule of axe, as a list of sentences.
() => {
  const found = [];
  const say = (rule, element) => {
    const text = element ? element.outerHTML.replace(/\s+/g, " ").slice(0, 160) : "";
    found.push(text ? `${rule}: ${text}` : rule);
  };
  const all = (selector) => [...document.querySelectorAll(selector)];
  const isShown = (element) =>
    element.checkVisibility({ checkVisibilityCSS: true }) && element.getClientRects().length > 0;

  // Structure: axe takes more than one h1, headers without a scope, regions without a name, ids that
  // occur twice, and references to what is not there yet

  if (all("h1").filter(isShown).length !== 1) say("not one h1");
  for (const each of all("th:not([scope])")) say("no scope", each);
  for (const each of all("table")) if (!each.querySelector("th")) say("a table without headers", each);
  for (const each of all('[role="region"], nav')) {
    if (isShown(each) && !each.ariaLabel && !each.hasAttribute("aria-labelledby")) say("no label", each);
  }
  for (const attribute of ["aria-labelledby", "aria-describedby", "aria-controls"]) {
    for (const each of all(`[${attribute}]`)) {
      const ids = each.getAttribute(attribute).split(/\s+/);
      if (!ids.every((id) => document.getElementById(id))) say(`${attribute} of nothing`, each);
    }
  }
  const ids = all("[id]").map((each) => each.id);
  for (const id of new Set(ids.filter((each, place) => ids.indexOf(each) !== place))) say(`two elements with the id ${id}`);

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
