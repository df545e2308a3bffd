"use strict";
// Comforts only: every page works without this file.

// A box in the table's head that ticks all jobs of the page.
for (const head of document.querySelectorAll("[data-lq-all]")) {
    const boxes = head.closest("table").querySelectorAll("tbody input[type=checkbox]");
    const all = document.createElement("input");
    all.type = "checkbox";
    all.setAttribute("aria-label", head.dataset.lqAll);
    all.addEventListener("change", () => boxes.forEach((box) => { box.checked = all.checked; }));
    head.append(all);
}

// A button that copies the text before it, where the browser allows it.
for (const text of navigator.clipboard ? document.querySelectorAll("[data-lq-copy]") : []) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "button lq-copy";
    button.textContent = text.dataset.lqCopy;
    button.addEventListener("click", () => navigator.clipboard.writeText(text.textContent));
    text.after(button);
}
