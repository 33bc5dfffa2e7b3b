// What every page does in the browser: confirm, copy, toasts, rail, theme, forms. No page depends on it to be read.
(() => {
  const words = JSON.parse(document.body.dataset.words);
  const root = document.documentElement;
  const say = (text) => { document.getElementById("said").textContent = text; };
  const remember = (name, value) => {
    document.cookie = `${name}=${encodeURIComponent(value)}; path=/; max-age=31536000; samesite=lax`;
  };

  // Of more tabs than a narrow screen holds, the open one is in view.
  document.querySelector(".object-tabs .active")?.scrollIntoView({ block: "nearest", inline: "center" });

  // --- toasts ---------------------------------------------------------------------------------------------------
  const STAY_MS = 7000;
  const arm = (toast) => {
    if (toast.dataset.armed) return;
    toast.dataset.armed = "yes";
    if (!toast.classList.contains("toast-error")) setTimeout(() => toast.remove(), STAY_MS);
  };
  const armAll = () => document.querySelectorAll("[data-toast]").forEach(arm);
  const toast = (text) => {
    const box = document.createElement("div");
    box.className = "toast-note toast-error";
    box.dataset.toast = "";
    box.setAttribute("role", "alert");
    const body = document.createElement("div");
    body.className = "toast-text";
    body.textContent = text;
    const close = document.createElement("button");
    close.type = "button";
    close.className = "btn-close";
    close.dataset.toastClose = "";
    close.setAttribute("aria-label", "×");
    box.append(body, close);
    document.getElementById("toasts").append(box);
    arm(box);
  };

  // --- copy -----------------------------------------------------------------------------------------------------
  const copy = async (button) => {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
    } catch {
      const area = document.createElement("textarea");
      area.value = button.dataset.copy;
      area.className = "visually-hidden";
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      if (!done) return toast(words.copy_failed);
    }
    button.classList.add("is-copied");
    say(words.copied);
    setTimeout(() => button.classList.remove("is-copied"), 1500);
  };

  // --- a destructive button says what will be lost -----------------------------------------------------------------
  const dialog = document.getElementById("confirm");
  const ask = (form) => new Promise((resolve) => {
    document.getElementById("confirm-title").textContent = form.dataset.confirmTitle || "";
    document.getElementById("confirm-lost").textContent = form.dataset.confirm;
    dialog.querySelector("[data-confirm-yes]").textContent = form.dataset.confirmTitle || words.sure;
    dialog.returnValue = "";
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
    dialog.showModal();
  });
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!form.dataset || !form.dataset.confirm || form.dataset.confirmed) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (!(await ask(form))) return;
    form.dataset.confirmed = "yes";
    form.requestSubmit(event.submitter);
    delete form.dataset.confirmed;
  }, true);

  // --- forms: a double click does nothing more; leaving with unsaved input asks ---------------------------------------
  let typed = false;
  let leaving = false;
  document.addEventListener("input", (event) => { if (event.target.closest("[data-form]")) typed = true; });
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.matches("[data-form]")) return;
    if (form.dataset.sent) return event.preventDefault();
    form.dataset.sent = "yes";
    leaving = true;
    const button = event.submitter || form.querySelector("[data-submit]");
    if (button) button.classList.add("btn-loading");
  });
  window.addEventListener("beforeunload", (event) => { if (typed && !leaving) event.preventDefault(); });
  window.addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    leaving = false;
    for (const form of document.querySelectorAll("[data-form]")) delete form.dataset.sent;
    for (const button of document.querySelectorAll(".btn-loading")) button.classList.remove("btn-loading");
  });

  // --- clicks -------------------------------------------------------------------------------------------------------
  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-copy], [data-toast-close], [data-rail-fold], [data-back], [data-wrap]");
    if (!target) return;
    if (target.matches("[data-copy]")) copy(target);
    else if (target.matches("[data-toast-close]")) target.closest("[data-toast]").remove();
    else if (target.matches("[data-back]")) history.back();
    else if (target.matches("[data-rail-fold]")) {
      const narrow = root.dataset.rail !== "narrow";
      if (narrow) root.dataset.rail = "narrow"; else delete root.dataset.rail;
      target.setAttribute("aria-pressed", String(narrow));
      remember("mlportal-rail", narrow ? "narrow" : "wide");
    }
  });

  // --- the theme changes at once and is stored behind the scenes ------------------------------------------------------
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("[data-theme-form]") || !event.submitter) return;
    event.preventDefault();
    const theme = event.submitter.value;
    root.dataset.theme = theme;
    document.dispatchEvent(new CustomEvent("portal:theme"));
    for (const button of event.target.querySelectorAll("button")) {
      if (button.value === theme) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    }
    const body = new FormData(event.target, event.submitter);
    fetch(event.target.action, { method: "POST", body, redirect: "manual" }).catch(() => toast(words.no_answer));
  });

  // --- what scrolls sideways can be reached and scrolled with the keyboard --------------------------------------------
  const reach = () => {
    for (const box of document.querySelectorAll(".table-responsive, pre")) {
      if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight + 1) box.tabIndex = 0;
    }
  };
  reach();
  window.addEventListener("resize", reach);
  document.addEventListener("htmx:after:swap", reach);

  // --- htmx ---------------------------------------------------------------------------------------------------------
  // The address of a filtered list holds what was chosen and the sort in force, nothing empty.
  document.addEventListener("htmx:config:request", (event) => {
    const { sourceElement, request } = event.detail.ctx;
    if (!sourceElement.matches("#filters")) return;
    const sort = new URLSearchParams(location.search).get("sort");
    if (sort) request.body.set("sort", sort);
    for (const [name, value] of [...request.body]) if (value === "") request.body.delete(name);
  });

  // An error that brings no place of its own (a fault, a page of the server in front) is never put into the page.
  document.addEventListener("htmx:after:request", (event) => {
    const { response, hx, sourceElement } = event.detail.ctx;
    if (!response || response.status < 400) return;
    const live = sourceElement && sourceElement.dataset && sourceElement.dataset.live !== undefined;
    if (!live && hx && hx.retarget) return;
    event.preventDefault();
    if (!live) toast(response.status >= 500 ? words.fault : words.no_answer);
  });
  document.addEventListener("htmx:after:swap", armAll);
  document.addEventListener("htmx:error", (event) => {
    const source = event.detail.ctx && event.detail.ctx.sourceElement;
    if (source && source.dataset && source.dataset.live !== undefined) return; // live.js says that it is not live
    toast(words.no_answer);
  });
  armAll();
})();
