// The import of a file: it is sent as it is, not as a field of a form, which may be 2 MB at most.

const form = document.querySelector("[data-import]");

if (form) {
  const file = form.querySelector("input[type=file]");
  const state = form.querySelector("[data-import-state]");
  form.querySelector("[data-import-file]").hidden = false;
  form.addEventListener("submit", async (event) => {
    if (!file.files.length) return;
    event.preventDefault();
    const fields = new FormData(form);
    const asked = new URLSearchParams({ topic: fields.get("topic") });
    if (fields.get("keep")) asked.set("keep", "1");
    state.textContent = "Importing…";
    try {
      const answer = await fetch(`${form.getAttribute("action")}?${asked}`, {
        method: "POST",
        headers: { "Content-Type": "application/x-ndjson", "X-CSRF-Token": fields.get("csrf") },
        body: file.files[0],
      });
      const text = await answer.text();
      if (answer.headers.get("content-type").startsWith("text/html")) {
        const page = new DOMParser().parseFromString(text, "text/html");
        document.getElementById("main").replaceWith(page.getElementById("main"));
        document.getElementById("main").focus();
      } else {
        state.textContent = text;
      }
    } catch {
      state.textContent = "The file could not be sent.";
    }
  });
}
