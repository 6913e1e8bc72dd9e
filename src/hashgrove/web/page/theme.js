/** Light or dark: the system's choice until the button is pressed, and then the reader's, also on later visits. */

const NAME = "hashgrove-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

/** Make `button` switch between light and dark, and apply what was chosen before. */
export function startTheme(button) {
  apply(localStorage.getItem(NAME), button);
  dark.addEventListener("change", () => apply(localStorage.getItem(NAME), button));
  button.addEventListener("click", () => {
    const chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    localStorage.setItem(NAME, chosen);
    apply(chosen, button);
  });
}

function apply(chosen, button) {
  const theme = chosen ?? (dark.matches ? "dark" : "light");
  document.documentElement.dataset.theme = theme;
  button.setAttribute("aria-pressed", String(theme === "dark"));
}
