// Asks for the service's token; it is kept until the tab is closed.
import { at } from "./dom.js";

const KEY = "iblurry-token";

export function kept() {
  return sessionStorage.getItem(KEY);
}

/** The token typed, or null for "not now". */
export function ask(refused) {
  const dialog = at("token"), field = at("token-text");
  at("token-why").textContent = refused
    ? "The service refused this token. Enter the token that it was started with."
    : "This service needs a token. Enter the token that it was started with.";
  field.value = "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      const token = dialog.returnValue === "given" ? field.value : null;
      field.value = "";
      if (token !== null) sessionStorage.setItem(KEY, token);
      resolve(token);
    }, { once: true });
  });
}

at("token-not").addEventListener("click", () => at("token").close());
at("token").firstElementChild.addEventListener("submit", (event) => {
  event.preventDefault();
  at("token").close("given");
});
