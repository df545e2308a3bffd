"use strict";
// Comforts only: every page works without this file.

// A box in the table's head that ticks all jobs of the page.
function addBoxes(root) {
    for (const head of root.querySelectorAll("[data-lq-all]")) {
        const boxes = head.closest("table").querySelectorAll("tbody input[type=checkbox]");
        const all = document.createElement("input");
        all.type = "checkbox";
        all.setAttribute("aria-label", head.dataset.lqAll);
        all.addEventListener("change", () => boxes.forEach((box) => { box.checked = all.checked; }));
        head.append(all);
    }
}

// A button that copies the text before it, where the browser allows it.
function addCopyButtons(root) {
    for (const text of navigator.clipboard ? root.querySelectorAll("[data-lq-copy]") : []) {
        const button = document.createElement("button");
        button.type = "button";
        button.className = "button lq-copy";
        button.textContent = text.dataset.lqCopy;
        button.addEventListener("click", () => navigator.clipboard.writeText(text.textContent));
        text.after(button);
    }
}

function addComforts(root) {
    addBoxes(root);
    addCopyButtons(root);
}
addComforts(document);

// An act on many jobs goes on by itself.
for (const form of document.querySelectorAll("[data-lq-go-on]")) {
    form.requestSubmit();
}

// Pages that are watched read themselves again, unless they are hidden, somebody works in
// them, or the box is not ticked; the choice is remembered.
const live = document.querySelector("[data-lq-refresh]");
if (live && Number(live.dataset.lqRefresh) > 0) {
    const key = "lq-refresh";
    const box = document.createElement("input");
    box.type = "checkbox";
    const label = document.createElement("label");
    label.className = "lq-refresh";
    label.append(box, " ", live.dataset.lqLabel);
    live.prepend(label);
    try { box.checked = localStorage.getItem(key) !== "off"; } catch { box.checked = true; }
    box.addEventListener("change", () => {
        try { localStorage.setItem(key, box.checked ? "on" : "off"); } catch { /* not remembered */ }
    });
    const isBusy = (region) => region.contains(document.activeElement)
        || region.querySelector("tbody input:checked, details[open]") !== null;
    const refresh = async () => {
        if (!box.checked || document.hidden) return;
        const response = await fetch(location.href, { headers: { "X-Requested-With": "fetch" } });
        if (!response.ok || response.redirected) return;
        const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
        for (const region of document.querySelectorAll("[data-lq-live]")) {
            const found = fresh.querySelector(`[data-lq-live="${region.dataset.lqLive}"]`);
            if (found && !isBusy(region)) {
                region.replaceChildren(...found.childNodes);
                addComforts(region);
            }
        }
    };
    setInterval(() => { refresh().catch(() => {}); }, Number(live.dataset.lqRefresh) * 1000);
    document.addEventListener("visibilitychange", () => { refresh().catch(() => {}); });
}
