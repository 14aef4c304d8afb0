// What every page can do beyond HTML: live parts, copying, the theme, the menu, and keys.
// Pages work without it, except that they do not stay current by themselves.

const wide = matchMedia("(min-width: 761px)");

// Live parts: <div data-live="/overview/events"> holds elements with data-part="name". The event
// "parts" is a JSON object of names and HTML, which the server has escaped.

function live(root) {
  const mark = root.querySelector("[data-live-state]");
  const say = (state, text) => {
    if (mark) {
      mark.dataset.state = state;
      mark.textContent = text;
    }
  };
  let source = null;
  let retry = 0;
  const stop = () => {
    clearTimeout(retry);
    if (source) source.close();
    source = null;
  };
  const start = () => {
    stop();
    source = new EventSource(root.dataset.live);
    source.addEventListener("open", () => say("", "connected"));
    source.addEventListener("parts", (event) => {
      say("on", "live");
      for (const [name, html] of Object.entries(JSON.parse(event.data))) replace(root, name, html);
    });
    source.addEventListener("problem", (event) => say("off", event.data));
    source.addEventListener("end", () => {
      stop();
      say("off", "ended");
    });
    source.addEventListener("error", () => {
      say("off", "not live, trying again");
      if (source && source.readyState === EventSource.CLOSED) retry = setTimeout(start, 5000);
    });
  };
  // A page that nobody sees costs the cluster nothing.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      stop();
      say("", "paused");
    } else if (!source) {
      start();
    }
  });
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => event.persisted && start());
  if (!document.hidden) start();
}

function replace(root, name, html) {
  const found = root.querySelector(`[data-part="${CSS.escape(name)}"]`);
  if (!found || found.dataset.shown === html) return;
  if (found.contains(document.activeElement) && found !== document.activeElement) {
    const at = focusable(found).indexOf(document.activeElement);
    found.innerHTML = html;
    const again = focusable(found)[at];
    if (again) again.focus({ preventScroll: true });
  } else {
    found.innerHTML = html;
  }
  found.dataset.shown = html;
  prepare(found);
}

function focusable(root) {
  return [...root.querySelectorAll("a[href], button, input, select, textarea, [tabindex]")];
}

// Buttons that need this file: they are hidden until it runs.

function prepare(root) {
  for (const button of root.querySelectorAll("button[data-copy]")) {
    button.hidden = false;
    button.onclick = async () => {
      const label = button.textContent;
      try {
        await navigator.clipboard.writeText(button.dataset.copy);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Cannot copy";
      }
      setTimeout(() => (button.textContent = label), 1500);
    };
  }
  for (const field of root.querySelectorAll("select[data-submit]")) {
    field.onchange = () => field.form.requestSubmit();
  }
}

function theme() {
  const button = document.querySelector("[data-theme-switch]");
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const now = () => (root.dataset.theme === "auto" ? (dark.matches ? "dark" : "light") : root.dataset.theme);
  const label = () => {
    button.textContent = now() === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `${button.textContent} theme`);
  };
  button.hidden = false;
  label();
  button.onclick = () => {
    root.dataset.theme = now() === "dark" ? "light" : "dark";
    document.cookie = `theme=${root.dataset.theme}; Path=/; Max-Age=31536000; SameSite=Strict`;
    label();
  };
}

function menu() {
  const button = document.querySelector("[data-menu]");
  const navigation = document.getElementById("navigation");
  const show = (open) => {
    navigation.classList.toggle("closed", !open);
    button.setAttribute("aria-expanded", String(open));
  };
  const fit = () => {
    button.hidden = wide.matches;
    show(wide.matches);
  };
  button.onclick = () => show(button.getAttribute("aria-expanded") !== "true");
  wide.addEventListener("change", fit);
  fit();
}

// Keys: never while somebody types, and never with Ctrl, Alt or Meta.

const PLACES = { o: "/", b: "/brokers", t: "/topics", m: "/messages", c: "/groups" };

function keys() {
  let goes = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.target.closest("input, select, textarea, [contenteditable]")) return;
    const dialog = document.getElementById("keys");
    if (event.key === "?") {
      if (!dialog.open) dialog.showModal();
    } else if (event.key === "/") {
      const filter = document.querySelector("[data-filter]");
      if (!filter) return;
      filter.focus();
      filter.select();
    } else if (event.key === "g") {
      goes = Date.now();
      return;
    } else if (Date.now() - goes < 1500 && PLACES[event.key]) {
      location.assign(PLACES[event.key]);
    } else {
      goes = 0;
      return;
    }
    goes = 0;
    event.preventDefault();
  });
}

theme();
menu();
keys();
prepare(document);
for (const root of document.querySelectorAll("[data-live]")) live(root);
