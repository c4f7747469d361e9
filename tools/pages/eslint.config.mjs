import js from "@eslint/js";

const browser = [
  ...["document", "location", "history", "navigator", "performance", "devicePixelRatio", "Blob"],
  ...["URL", "URLSearchParams", "Path2D", "Image", "ResizeObserver", "XMLSerializer", "atob"],
  ...["addEventListener", "matchMedia", "getComputedStyle", "requestAnimationFrame", "cancelAnimationFrame"],
  ...["setInterval", "clearInterval", "setTimeout", "clearTimeout", "TextEncoder", "AbortController"],
  ...["fetch", "console", "innerWidth", "innerHeight", "window", "top", "self", "parent"],
  ...["scrollTo", "EventSource", "XMLHttpRequest", "CustomEvent", "Option"],
];

export default [
  js.configs.recommended,
  {
    files: ["**/*.mjs", "**/*.js"],
    languageOptions: { globals: Object.fromEntries(browser.map((name) => [name, "readonly"])) },
    rules: {
      "one-var": ["error", "never"],
      "prefer-const": "error",
      "no-var": "error",
      eqeqeq: "error",
      "no-implicit-globals": "error",
      "no-unused-vars": ["error", { args: "after-used", argsIgnorePattern: "^_" }],
    },
  },
];
